"""The example of the README: four parties share images of digits, one of them is three times slower."""

import colonnade

data = colonnade.dataset("digits", parties=4)
world = colonnade.Simulate(parties={"party4": colonnade.SimulatedParty(slowdown=3.0)})
training = colonnade.Training(epochs=10, batch_size=32, learning_rate=0.1)

for algorithm in ("split", "vafl"):
    outcome = colonnade.train(data, algorithm, training=training, simulate=world, seed=0)
    accuracy, seconds = outcome.summary["test"]["accuracy"], outcome.summary["virtual_seconds"]
    print(f"{algorithm}: accuracy {accuracy:.3f} after {seconds:.1f} virtual seconds")
