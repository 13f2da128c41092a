"""What the report takes of the lab, in one place: importing it needs the lab's extra."""

from madamoo.bench import available
from madamoo.bench._files import Damaged, read_record
from madamoo.bench._fronts import fronts_of
from madamoo.bench._records import read_records
from madamoo.bench._summary import counts, in_words, summarise

__all__ = ["Damaged", "available", "counts", "fronts_of", "in_words", "read_record", "read_records", "summarise"]
