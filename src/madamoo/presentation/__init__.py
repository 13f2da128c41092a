"""The one place that draws and lays out: reports, the demo, the paper's figures, fronts and the lab's tables come here.

:mod:`.style` has the palette and the names that readers see, :mod:`.tables` writes tables (text, Markdown, LaTeX, HTML)
and :mod:`.plots` makes interactive figures, :mod:`.pictures` static ones; :mod:`.fronts` draws Pareto fronts as either,
:mod:`.images` shows photographs and slices, and :mod:`.page` puts all of it on an HTML page. The other packages only
say what is shown. matplotlib, plotly and rich are imported when something is drawn with them.
"""
