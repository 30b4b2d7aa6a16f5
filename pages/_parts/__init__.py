"""What pages are made of: the header, cards, charts, forms and words. Pages and parts know the engine's facade only."""
