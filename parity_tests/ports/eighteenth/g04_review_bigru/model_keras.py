from keras.layers import GRU, Bidirectional, Dense, Dropout, Embedding, Input
from keras.models import Sequential

MAXLEN = 14
VOCAB = 60

# hw3: sentiment of reviews


def build():
    model = Sequential()
    model.add(Input(shape=(MAXLEN,), dtype="int32", name="tokens"))
    model.add(Embedding(VOCAB, 12, mask_zero=True))
    model.add(Bidirectional(GRU(10, return_sequences=True)))
    model.add(Bidirectional(GRU(8)))
    model.add(Dense(16, activation="tanh"))
    model.add(Dropout(0.3))
    model.add(Dense(1))
    return model
