"""From networks to sequences: loops that propose, score, take and record."""
