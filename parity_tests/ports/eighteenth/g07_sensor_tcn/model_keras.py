import keras
from keras import layers


class TemporalBlock(layers.Layer):
    """Two dilated causal convolutions and a residual path (Bai et al. 2018)."""

    def __init__(self, filters, kernel_size, dilation, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.dropout = dropout

    def build(self, input_shape):
        def conv(name):
            return layers.Conv1D(
                self.filters, self.kernel_size, padding="causal", dilation_rate=self.dilation, name=name
            )

        self.conv_a, self.conv_b = conv("conv_a"), conv("conv_b")
        self.norm_a = layers.LayerNormalization(name="norm_a")
        self.norm_b = layers.LayerNormalization(name="norm_b")
        self.drop_a = layers.SpatialDropout1D(self.dropout)
        self.drop_b = layers.SpatialDropout1D(self.dropout)
        self.skip = None
        if input_shape[-1] != self.filters:
            self.skip = layers.Conv1D(self.filters, 1, name="skip")
        inner = (*input_shape[:-1], self.filters)
        self.conv_a.build(input_shape)
        self.conv_b.build(inner)
        self.norm_a.build(inner)
        self.norm_b.build(inner)
        if self.skip is not None:
            self.skip.build(input_shape)
        self.built = True

    def call(self, x, training=None):
        y = self.drop_a(keras.activations.relu(self.norm_a(self.conv_a(x))), training=training)
        y = self.drop_b(keras.activations.relu(self.norm_b(self.conv_b(y))), training=training)
        residual = x if self.skip is None else self.skip(x)
        return keras.activations.relu(y + residual)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.filters)

    def get_config(self):
        config = super().get_config()
        config.update(
            filters=self.filters, kernel_size=self.kernel_size, dilation=self.dilation, dropout=self.dropout
        )
        return config


def build():
    series = layers.Input((24, 3), name="series")
    x = series
    for i, filters in enumerate([12, 12, 16]):
        x = TemporalBlock(filters, 3, 2**i, dropout=0.15, name=f"block_{i}")(x)
    last = layers.Lambda(lambda s: s[:, -1], output_shape=(16,), name="last")(x)
    return keras.Model(series, layers.Dense(1, name="forecast")(last))
