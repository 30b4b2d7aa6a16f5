"""Scores, one file each, found by discovery. Every module declares `ENTRIES`; importing the package imports none of them."""
