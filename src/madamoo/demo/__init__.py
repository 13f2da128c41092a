"""``madamoo demo``: MAdam against Adam in about a minute, on two cores, without a download.

A room of its own beside the library: it imports the public names, and nothing imports it but the command line.
"""
