"""Both frameworks in one file, as ports often have them."""

import keras
import torch


def build():
    return torch.nn.Linear(2, 2)


def build_keras():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
