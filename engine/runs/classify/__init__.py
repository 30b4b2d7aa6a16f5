"""Classification runs: what is asked for, what is learned and forecast, and how it is scored."""
