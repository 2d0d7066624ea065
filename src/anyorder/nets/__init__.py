"""Networks: ids (and time) -> hidden states -> logits. No losses, no sampling."""
