"""A run in the files of other tools, each under that tool's own rules; and as plain tables.

The one thing to know: ``command.FORMATS`` names for each format a function from runs to files; a file is its path below
the output folder and either its bytes or a function that writes it. The window is the whole run, as theirs is.
"""
