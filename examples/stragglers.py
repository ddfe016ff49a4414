"""What a slow party, a sluggish moment, a lossy link and a crash cost each schedule, in virtual seconds.

Everybody takes ten milliseconds a step; party4 takes thirty, now and then ten times that, loses its connection for two
seconds, and one frame in twenty is lost on every link.
"""

import colonnade
from colonnade import Simulate, SimulatedParty, Split, Training, Vafl

SCHEDULES = {
    "split": Split(),
    "split, going on without a lost party": Split(party_timeout_seconds=0.2),
    "vafl, two at a time": Vafl(wait_for=2),
    "vafl": Vafl(),
    "vafl, nothing older than 200 exchanges": Vafl(max_delay=200),
}

WORLD = Simulate(
    compute_seconds=0.01,
    loss=0.05,
    parties={
        "party4": SimulatedParty(slowdown=3.0, straggle_probability=0.05, straggle_factor=10.0, crashes=((2.0, 4.0),))
    },
)


def main(epochs: float = 10) -> dict[str, float]:
    data = colonnade.dataset("digits", parties=4)
    training = Training(epochs=epochs, batch_size=32, learning_rate=0.1)
    seconds = {}
    for name, algorithm in SCHEDULES.items():
        summary = colonnade.train(data, algorithm, training=training, simulate=WORLD).summary
        seconds[name] = summary["virtual_seconds"]
        print(
            f"{name:40} {seconds[name]:6.1f} virtual seconds   accuracy {summary['test']['accuracy']:.3f}   "
            f"staleness p95 {summary['staleness']['p95']}"
        )
    return seconds


if __name__ == "__main__":
    main()
