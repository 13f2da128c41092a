"""Networks with one shared trunk and one head for each objective. One file each, with a function ``build``.

``build(inputs, outputs, **options)`` takes the shape of one input and the size of each objective's output, and returns
a module that maps a batch to the list of the outputs.
"""
