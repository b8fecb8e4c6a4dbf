"""Knowledge tracing with key-value memory (DKVMN): will the next exercise be answered right?

Exercise 0 is padding, behind the exercises of a learner.
"""

import keras
from keras import layers, ops


class Memory(layers.Layer):
    def __init__(self, skills, slots=5, keys=6, values=8, **kwargs):
        super().__init__(**kwargs)
        self.skills = skills
        self.slots, self.keys, self.values = slots, keys, values
        self.skill = layers.Embedding(skills + 1, keys, name="skill")
        self.interaction = layers.Embedding(2 * skills + 1, values, name="interaction")
        self.erase = layers.Dense(values, activation="sigmoid", name="erase")
        self.add = layers.Dense(values, activation="tanh", name="add")

    def build(self, skills_shape, answers_shape):
        self.skill.build()
        self.interaction.build()
        self.erase.build((None, self.values))
        self.add.build((None, self.values))
        self.key = self.add_weight(shape=(self.slots, self.keys), initializer="random_normal", name="key")
        self.start = self.add_weight(
            shape=(self.slots, self.values), initializer="random_normal", name="start"
        )

    def call(self, skills, answers):
        query = self.skill(skills)
        weight = ops.softmax(ops.matmul(query, ops.transpose(self.key)), axis=-1)[..., None]
        known = ops.cast(skills > 0, "int32")
        event = self.interaction((skills + self.skills * answers) * known)
        erase, add = self.erase(event)[:, :, None], self.add(event)[:, :, None]
        memory = self.start[None] * ops.ones_like(weight[:, 0])
        reads = []
        for t in range(skills.shape[1]):
            reads.append(ops.sum(weight[:, t] * memory, axis=1))
            memory = memory * (1 - weight[:, t] * erase[:, t]) + weight[:, t] * add[:, t]
        return ops.concatenate([ops.stack(reads, axis=1), query], axis=-1)

    def compute_output_shape(self, skills_shape, answers_shape):
        return (*skills_shape, self.values + self.keys)


def build(steps=8, skills=9):
    exercise = keras.Input((steps,), dtype="int32", name="skills")
    answer = keras.Input((steps,), dtype="int32", name="answers")
    x = Memory(skills, name="memory")(exercise, answer)
    x = layers.Dense(10, activation="tanh", name="summary")(x)
    logits = layers.Reshape((steps,), name="logits")(layers.Dense(1, name="right")(x))
    return keras.Model([exercise, answer], logits)


def loss(y_true, y_pred):
    """Binary cross-entropy: a mean of each learner's exercises."""
    known = ops.cast(y_true >= 0, y_pred.dtype)
    value = ops.softplus(y_pred) - y_true * y_pred
    return ops.sum(value * known, axis=-1) / ops.sum(known, axis=-1)
