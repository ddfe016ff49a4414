"""How tests run here: Hypothesis without deadlines, PyTorch with one thread.

How long an example takes says nothing about the code. The order of additions is part of a result, and runs are made
with one thread: so must be what they are compared with. Two tests at a time on two cores are no slower for it.
"""

import torch
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
torch.set_num_threads(1)
