"""What a test asserts of a Keras model and its PyTorch port."""
