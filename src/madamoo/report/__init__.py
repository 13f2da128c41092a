"""``madamoo report``: what a run did, as one HTML page that needs nothing but itself.

What a page shows is made from a lab run, a folder of them, two runs to compare, or the record of a probe on a training
loop of your own; :mod:`madamoo.presentation` lays it out.
"""
