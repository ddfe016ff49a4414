"""Private set intersection: the rows that all parties hold, in one order, and no id outside of them.

A party here is the same pure state machine as in a training, and any runtime carries it. It never sees an id: it is
given points that ids were hashed to, and ends with the numbers of its own rows.
"""
