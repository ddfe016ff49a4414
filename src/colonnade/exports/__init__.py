"""A trained model in the forms of other programs: ONNX, TorchScript, coefficients by column, scikit-learn."""
