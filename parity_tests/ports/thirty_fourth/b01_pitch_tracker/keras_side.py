"""Frame-wise pitch tracker on raw audio: log power spectrogram -> conv -> BiGRU -> pitch bins and voicing."""

import keras
import tensorflow as tf
from keras import layers, ops

SAMPLES = 480
BINS = 16


@keras.saving.register_keras_serializable("pitch")
class LogSpectrogram(layers.Layer):
    def __init__(self, frame=64, hop=16, **kwargs):
        super().__init__(**kwargs)
        self.frame, self.hop = frame, hop

    def call(self, audio):
        spec = tf.signal.stft(audio, frame_length=self.frame, frame_step=self.hop, fft_length=self.frame)
        power = tf.square(tf.abs(spec))
        return tf.math.log(power + 1e-3)

    def get_config(self):
        return {**super().get_config(), "frame": self.frame, "hop": self.hop}


def pitch_loss(y_true, y_pred):
    """y_true: the bin of each frame as a real number in 1..16, 0 where unvoiced."""
    y_true = ops.cast(y_true, y_pred.dtype)
    voiced = ops.cast(y_true > 0, y_pred.dtype)
    centres = ops.arange(1, BINS + 1, dtype=y_pred.dtype)
    soft = ops.exp(-0.5 * ops.square((ops.expand_dims(y_true, -1) - centres) / 0.8))
    soft = soft / ops.sum(soft, axis=-1, keepdims=True)
    cross_entropy = -ops.sum(soft * ops.log_softmax(y_pred[..., :BINS], axis=-1), axis=-1)
    pitch = ops.sum(cross_entropy * voiced) / ops.maximum(ops.sum(voiced), 1.0)
    voicing = ops.mean(ops.binary_crossentropy(voiced, y_pred[..., BINS], from_logits=True))
    return pitch + 2.0 * voicing


def build():
    audio = keras.Input((SAMPLES,), name="audio")
    x = LogSpectrogram(name="spec")(audio)
    x = layers.LayerNormalization(epsilon=1e-5, name="spec_norm")(x)
    x = layers.Conv1D(24, 3, strides=2, padding="same", activation="relu", name="subsample")(x)
    x = layers.Bidirectional(layers.GRU(16, return_sequences=True), name="rnn")(x)
    scores = layers.Dense(BINS + 1, name="scores")(x)
    model = keras.Model(audio, scores, name="pitch_tracker")
    model.compile(optimizer=keras.optimizers.Adam(2e-3), loss=pitch_loss)
    return model
