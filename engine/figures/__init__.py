"""Figures: one file each, every picture drawn for the screen by plotly and for export by matplotlib, from the same table."""
