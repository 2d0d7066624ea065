"""The family `backward`: an autoregressive model whose first token is the last of the text."""
