"""``madamoo report``: what a run did, as one HTML page that needs nothing but itself.

A page is made of sections, and a section of words, tables and figures (:mod:`madamoo.report.page`); what they say is
made from a lab run, a folder of them, two runs to compare, or the record of a probe on a training loop of your own.
"""
