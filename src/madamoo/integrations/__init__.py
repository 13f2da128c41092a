"""Bridges to other libraries, one module each: import the one you need. Each needs its library; madamoo does not."""
