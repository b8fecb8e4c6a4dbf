from keras import Input, Model, layers


def build(source_words=40, target_words=35, units=24):
    source = Input((10,), dtype="int32", name="source")
    target = Input((8,), dtype="int32", name="target")
    x = layers.Embedding(source_words, 16, name="source_embedding")(source)
    x = layers.LSTM(units, return_sequences=True, name="encoder1")(x)
    memory, h, c = layers.LSTM(units, return_sequences=True, return_state=True, name="encoder2")(x)
    y = layers.Embedding(target_words, 16, name="target_embedding")(target)
    y = layers.LSTM(units, return_sequences=True, name="decoder")(y, initial_state=[h, c])
    context = layers.Attention(name="attention")([y, memory])
    y = layers.Concatenate(name="context_and_state")([context, y])
    y = layers.Dense(units, activation="tanh", use_bias=False, name="attentional")(y)
    return Model([source, target], layers.Dense(target_words, name="logits")(y), name="seq2seq")
