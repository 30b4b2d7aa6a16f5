"""What the web server answers beside pages: uploads, result files, and the guard in front of everything."""
