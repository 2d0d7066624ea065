"""Published checkpoints: their files, tensor names, configurations and tokenizers."""
