"""What the parties of every linear federation say to one another: sums of products, plain or masked, and their use."""

from colonnade.algorithms.row import Conversation, Passes
from colonnade.messages import MaskedSum, Message, ProductSum, ResidualReply


def sums_of_products(passes: Passes) -> Conversation:
    """Asynchronous: a party asks when it likes; one without labels is answered with residuals."""
    return _sums(ResidualReply, passes, asynchronous=True)


def shared_steps(reply: type[Message], passes: Passes, tells_columns: bool = True) -> Conversation:
    """Synchronous: the label party asks, and tells everybody what came out."""
    return _sums(reply, passes, asynchronous=False, tells_columns=tells_columns)


def _sums(reply: type[Message], passes: Passes, asynchronous: bool, tells_columns: bool = True) -> Conversation:
    return Conversation(
        upload=ProductSum,
        masked_upload=MaskedSum,
        reply=reply,
        answers="residuals",
        asynchronous=asynchronous,
        passes=passes,
        tells_columns=tells_columns,
    )
