from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken=70, ninp=32, nlayers=2):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, ninp, nlayers, batch_first=True)
        self.decoder = nn.Linear(ninp, ntoken)
        self.init_weights()

    def init_weights(self):
        nn.init.normal_(self.encoder.weight, std=self.encoder.embedding_dim**-0.5)
        self.decoder.weight.data.copy_(self.encoder.weight.data)
        nn.init.zeros_(self.decoder.bias)
        for name, p in self.rnn.named_parameters():
            if "bias_hh" in name:  # Keras's LSTM has one bias
                nn.init.zeros_(p)
                p.requires_grad = False

    def forward(self, x):
        output, _ = self.rnn(self.encoder(x))
        return self.decoder(output)
