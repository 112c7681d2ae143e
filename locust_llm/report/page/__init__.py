"""What the HTML pages are made of: the run card, charts as plotly dictionaries, tables, the style and the script.

The one thing to know: every chart is a plain dictionary whose data is thinned before it gets here, and has a table of
the same numbers behind it. ``report/html.py`` puts the pages together.
"""
