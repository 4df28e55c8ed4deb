"""Sixty-four small things to write, in eight kinds; code decides whether they were written as asked."""

from __future__ import annotations

from typing import Final

from benchmarks.revising.wanted import (
    Instruction,
    avoids,
    begins,
    ends,
    json_list,
    json_object,
    lacks,
    least_words,
    lines,
    looks,
    most_chars,
    most_words,
    order,
    says,
)
from kairo_team.evaluators import Criterion

_BULLET: Final = "- [^\\n]*\\S"
_SHORT: Final = ("red", "tan", "Red", "Tan")
_QUESTION: Final = "What is the weather like today, and what will it be like tomorrow, if I may ask you?"


def _with(*keys: str) -> Criterion:
    """Want a JSON object with just these keys."""
    named = " and ".join(f'"{key}"' for key in keys)
    return json_object(
        f"with the key{'s' * (len(keys) > 1)} {named} and no other", lambda found: set(found) == set(keys)
    )


LENGTH: Final = (
    Instruction(
        *("length-1", "Write one sentence about the sea in at most 8 words.", (most_words(8),)),
        good="The sea is deep and blue.",
        bad="The sea is a very deep, blue and restless body of water.",
    ),
    Instruction(
        *("length-2", "Describe a cat in exactly 5 words.", (least_words(5), most_words(5))),
        good="Soft, quiet, quick, proud, warm.",
        bad="A cat is a small, furry animal.",
    ),
    Instruction(
        *("length-3", "Name a fruit. Answer with one word.", (most_words(1),)),
        good="Apple",
        bad="An apple is a fruit.",
    ),
    Instruction(
        *("length-4", "Write a sentence of at least 15 words about rain.", (least_words(15),)),
        good="When the rain fell on the old roof we all sat in the kitchen and listened to it.",
        bad="Rain is wet.",
    ),
    Instruction(
        *("length-5", "Say hello in at most 3 words.", (most_words(3),)),
        good="Hello, my friend!",
        bad="Hello! How can I help you today?",
    ),
    Instruction(
        *("length-6", "Write a title for a story about a lost dog. At most 6 words.", (most_words(6),)),
        good="The Dog Who Came Home",
        bad="The Long and Lonely Journey of a Small Lost Dog",
    ),
    Instruction(
        *("length-7", "Explain why we sleep in at most 60 characters.", (most_chars(60),)),
        good="We sleep so that body and mind can rest.",
        bad="We sleep because our body and our mind need a long time every night to rest and to recover.",
    ),
    Instruction(
        *("length-8", "Write a sentence of 10 to 14 words about bread.", (least_words(10), most_words(14))),
        good="The bread on the table was still warm when we came home.",
        bad="Bread is good.",
    ),
)

SAYS: Final = (
    Instruction(
        *("says-1", 'Write a sentence with the words "moon" and "river".', (says("moon", "river"),)),
        good="The moon shone on the river.",
        bad="The moon shone on the lake.",
    ),
    Instruction(
        *(
            "says-2",
            'Write a sentence with the words "apple", "knife" and "table".',
            (says("apple", "knife", "table"),),
        ),
        good="The apple and the knife lay on the table.",
        bad="The apple lay on the table.",
    ),
    Instruction(
        "says-3",
        'Write one sentence about a school. Use the words "teacher", "chalk" and "bell".',
        (says("teacher", "chalk", "bell"),),
        good="The teacher put down the chalk when the bell rang.",
        bad="The teacher went home.",
    ),
    Instruction(
        *("says-4", "Write a greeting to Anna. Say that you meet on Monday.", (says("Anna", "Monday"),)),
        good="Hello Anna, see you on Monday!",
        bad="Hello Anna, see you soon!",
    ),
    Instruction(
        "says-5",
        'Describe a winter day. Use the words "snow", "quiet" and "window".',
        (says("snow", "quiet", "window"),),
        good="Snow fell past the window, and all was quiet.",
        bad="Snow fell all day.",
    ),
    Instruction(
        *("says-6", 'Write a sentence with the number 42 and the word "train".', (says("42", "train"),)),
        good="Train 42 is late.",
        bad="The train is late.",
    ),
    Instruction(
        "says-7",
        'Write two sentences about a farm. Use the words "goat", "gate", "mud" and "egg".',
        (says("goat", "gate", "mud", "egg"),),
        good="The goat stood at the gate. There was mud on the egg.",
        bad="The goat stood at the gate. It was hungry.",
    ),
    Instruction(
        *("says-8", "Thank Mr. Brown for the blue umbrella.", (says("thank", "Mr. Brown", "blue umbrella"),)),
        good="Thank you, Mr. Brown, for the blue umbrella!",
        bad="Thank you for the umbrella!",
    ),
)

AVOIDS: Final = (
    Instruction(
        *("avoids-1", 'Describe the sun. Do not use the word "hot".', (avoids("hot"),)),
        good="It rises in the east and gives us light.",
        bad="The sun is hot and bright.",
    ),
    Instruction(
        *("avoids-2", 'Describe a dog. Do not use the word "dog".', (avoids("dog", "dogs"),)),
        good="It barks, wags its tail and guards the house.",
        bad="A dog barks.",
    ),
    Instruction(
        *("avoids-3", 'Write a sentence about the night. Do not use the word "the".', (avoids("the"),)),
        good="Stars shine, and all is still.",
        bad="The stars shine.",
    ),
    Instruction(
        *("avoids-4", 'Describe the ocean. Do not use "water" and "blue".', (avoids("water", "blue"),)),
        good="It is wide, deep and salty.",
        bad="The ocean is blue.",
    ),
    Instruction(
        *(
            "avoids-5",
            'Write one sentence about a car. Do not use "fast", "road" and "drive".',
        ),
        (avoids("fast", "road", "drive"),),
        good="The car stands in the garage.",
        bad="We drive the car.",
    ),
    Instruction(
        *("avoids-6", "Write a sentence about a market. Do not use a comma.", (lacks("no-comma", "no comma", ","),)),
        good="The market opens at seven.",
        bad="At the market, we bought fish.",
    ),
    Instruction(
        *("avoids-7", 'Write a birthday wish. Do not use "happy" and "birthday".', (avoids("happy", "birthday"),)),
        good="All the best for your new year!",
        bad="Happy birthday to you!",
    ),
    Instruction(
        *("avoids-8", 'Describe snow. Do not use "white", "cold" and "winter".', (avoids("white", "cold", "winter"),)),
        good="Soft flakes cover the roofs.",
        bad="Snow is white.",
    ),
)

LIST: Final = (
    Instruction(
        "list-1",
        'List three fruits, one on each line. Each line begins with "- ".',
        (lines(3, _BULLET, 'each begins with "- "'),),
        good="- apple\n- pear\n- plum",
        bad="apple, pear, plum",
    ),
    Instruction(
        "list-2",
        "List four animals, one word on each line, and nothing else.",
        (lines(4, "[^\\s\\d]+", "each of one word"),),
        good="cat\ndog\ncow\nhen",
        bad="1. cat\n2. dog\n3. cow\n4. hen",
    ),
    Instruction(
        "list-3",
        "Write a numbered list of three colours.",
        (
            looks(
                "numbered", "three lines that begin with 1., 2. and 3.", r"^\s*1\.[^\n]+\n\s*2\.[^\n]+\n\s*3\.[^\n]+$"
            ),
        ),
        good="1. red\n2. green\n3. blue",
        bad="red, green, blue",
    ),
    Instruction(
        "list-4",
        "Name two drinks, separated by a comma, and nothing else.",
        (most_words(4), looks("pair", "two names with one comma between", r"^[^,\n.:]+, ?[^,\n.:]+$")),
        good="tea, coffee",
        bad="Tea and coffee",
    ),
    Instruction(
        "list-5",
        "Write five numbers, separated by spaces, and nothing else.",
        (looks("numbers", "five numbers with spaces between and nothing else", r"^\s*\d+( \d+){4}\s*$"),),
        good="3 1 4 1 5",
        bad="1, 2, 3, 4, 5",
    ),
    Instruction(
        "list-6",
        'How do you wash your hands? Answer with exactly two lines. Each line begins with "- ".',
        (lines(2, _BULLET, 'each begins with "- "'),),
        good="- Take soap and water.\n- Rub for twenty seconds.",
        bad="Take soap and water.",
    ),
    Instruction(
        "list-7",
        'Name two cities on two lines. Each line begins with "* ".',
        (lines(2, "\\* [^\\n]*\\S", 'each begins with "* "'),),
        good="* Rome\n* Oslo",
        bad="- Rome\n- Oslo",
    ),
    Instruction(
        "list-8",
        'Write three words joined by "+", as in red+dry+far.',
        (looks("joined", 'three words joined by "+" and nothing else', r"^\s*\w+ ?\+ ?\w+ ?\+ ?\w+\s*$"),),
        good="sun+sea+sand",
        bad="sun, sea, sand",
    ),
)

JSON: Final = (
    Instruction(
        "json-1",
        'Answer with JSON: an object with only the key "name" and a name.',
        (_with("name"),),
        good='{"name": "Kim"}',
        bad="name: Kim",
    ),
    Instruction(
        "json-2",
        'Answer with JSON alone: an object with only the keys "city" and "country" for Paris.',
        (says("Paris", "France"), _with("city", "country")),
        good='{"city": "Paris", "country": "France"}',
        bad='{"city": "Paris"}',
    ),
    Instruction(
        "json-3",
        "Answer with a JSON list of three colours.",
        (json_list("of three texts", lambda found: [type(one) for one in found] == [str, str, str]),),
        good='["red", "green", "blue"]',
        bad="red, green, blue",
    ),
    Instruction(
        "json-4",
        "Answer with a JSON list of the numbers from 1 to 5.",
        (json_list("of the numbers from 1 to 5", lambda found: found == [1, 2, 3, 4, 5]),),
        good="[1, 2, 3, 4, 5]",
        bad="1, 2, 3, 4, 5",
    ),
    Instruction(
        "json-5",
        'Answer with this JSON object and nothing else: {"ok": true}',
        (json_object('like {"ok": true}', lambda found: found == {"ok": True}),),
        good='{"ok": true}',
        bad="ok",
    ),
    Instruction(
        "json-6",
        'Answer with JSON: an object with the key "age" and a whole number.',
        (json_object('with the key "age" and a whole number', lambda found: type(found.get("age")) is int),),
        good='{"age": 30}',
        bad='{"age": "thirty"}',
    ),
    Instruction(
        "json-7",
        'Answer with JSON alone: an object with only the keys "animal" and "legs" for a horse.',
        (says("horse"), _with("animal", "legs")),
        good='{"animal": "horse", "legs": 4}',
        bad="A horse has four legs.",
    ),
    Instruction(
        "json-8",
        'Answer with a JSON object that has the keys "title" and "year" of a book, and no other.',
        (_with("title", "year"),),
        good='{"title": "Emma", "year": 1815}',
        bad='{"title": "Emma", "year": 1815, "author": "Austen"}',
    ),
)

ENDS: Final = (
    Instruction(
        *("ends-1", "Ask a question about trains.", (ends("?"),)),
        good="When does the next train leave?",
        bad="Trains leave often.",
    ),
    Instruction(
        *("ends-2", 'Write a sentence about birds that begins with "Every morning".', (begins("Every morning"),)),
        good="Every morning the birds sing.",
        bad="The birds sing every morning.",
    ),
    Instruction(
        *(
            "ends-3",
            'Write a sentence that ends with the word "home".',
            (looks("ends", 'it ends with "home"', r"(?i)\bhome[.!]?\s*$"),),
        ),
        good="At last we went home.",
        bad="Our home is far away.",
    ),
    Instruction(
        "ends-4",
        'Write a short note. Begin with "Dear Sam," and end with "Yours, Kim".',
        (begins("Dear Sam,"), ends("Yours, Kim")),
        good="Dear Sam,\nsee you soon.\nYours, Kim",
        bad="Hello Sam, see you soon. Kim",
    ),
    Instruction(
        *("ends-5", "Wish somebody luck. End with an exclamation mark.", (ends("!"),)),
        good="Good luck!",
        bad="Good luck.",
    ),
    Instruction(
        *("ends-6", 'Is ice cold? Begin your answer with "Yes,".', (begins("Yes,"),)),
        good="Yes, ice is cold.",
        bad="Ice is cold.",
    ),
    Instruction(
        "ends-7",
        'Say what happens at lunch. Begin with "First" and use the word "Then".',
        (begins("First"), looks("then", 'it says "Then"', r"\bThen\b")),
        good="First we sit down. Then we eat.",
        bad="We sit down and eat.",
    ),
    Instruction(
        "ends-8",
        "Write a sign that forbids smoking. Use capital letters only.",
        (lacks("capitals", "no small letters", "[a-z]"),),
        good="NO SMOKING",
        bad="No smoking",
    ),
)

ORDER: Final = (
    Instruction(
        *("order-1", 'Write a sentence in which "bread" stands before "butter".', (order("bread", "butter"),)),
        good="I put bread beside the butter.",
        bad="I put butter on the bread.",
    ),
    Instruction(
        *("order-2", 'Write a sentence in which "night" stands before "day".', (order("night", "day"),)),
        good="After the night comes the day.",
        bad="The day is over, and it is night.",
    ),
    Instruction(
        "order-3",
        "Name the four seasons. Begin with summer.",
        (order("summer", "autumn", "winter", "spring"),),
        good="Summer, autumn, winter, spring",
        bad="Spring, summer, autumn, winter",
    ),
    Instruction(
        "order-4",
        "Count down from 5 to 1.",
        (looks("down", "5, 4, 3, 2, 1 in this order, and no other number", r"^\D*5\D+4\D+3\D+2\D+1\D*$"),),
        good="5, 4, 3, 2, 1",
        bad="1, 2, 3, 4, 5",
    ),
    Instruction(
        "order-5",
        "Write the letters D, C, B, A in this order and nothing else.",
        (looks("letters", "D, C, B, A and nothing else", r"^\s*D,? ?C,? ?B,? ?A\.?\s*$"),),
        good="D, C, B, A",
        bad="A, B, C, D",
    ),
    Instruction(
        "order-6",
        'Write a sentence about soup. Say "onion" first, "carrot" later and "salt" last.',
        (order("onion", "carrot", "salt"),),
        good="Fry the onion, add the carrot, then the salt.",
        bad="Salt the carrot and the onion.",
    ),
    Instruction(
        "order-7",
        "Put these names in the order of the alphabet: Zoe, Mia, Ben.",
        (looks("names", "Ben, then Mia, then Zoe, each once", r"^[^BMZ]*Ben[^BMZ]*Mia[^BMZ]*Zoe[^BMZ]*$"),),
        good="Ben, Mia, Zoe",
        bad="Zoe, Mia, Ben",
    ),
    Instruction(
        "order-8",
        "Write these days from the last to the first: Monday, Tuesday, Wednesday.",
        (order("Wednesday", "Tuesday", "Monday"),),
        good="Wednesday, Tuesday, Monday",
        bad="Monday, Tuesday, Wednesday",
    ),
)

MIXED: Final = (
    Instruction(
        *("mixed-1", "Write a question about fish in at most 8 words.", (most_words(8), ends("?"))),
        good="Do fish sleep at night?",
        bad=_QUESTION,
    ),
    Instruction(
        "mixed-2",
        'Write a sentence of at most 10 words. Begin with "The old" and use the word "clock".',
        (most_words(10), begins("The old"), says("clock")),
        good="The old clock stopped at noon.",
        bad="My clock stopped.",
    ),
    Instruction(
        "mixed-3",
        'Say two things about books on two lines. Each line begins with "- " and has at most 6 words.',
        (lines(2, "-(?: [^\\s]+){1,6}", 'each begins with "- " and has at most 6 words'),),
        good="- Books tell stories.\n- Books last long.",
        bad="Books tell stories.",
    ),
    Instruction(
        "mixed-4",
        'Answer with JSON alone: an object with the key "colour" and a colour of three letters.',
        (
            json_object(
                'with the key "colour" and a colour of three letters', lambda found: found.get("colour") in _SHORT
            ),
        ),
        good='{"colour": "red"}',
        bad='{"colour": "green"}',
    ),
    Instruction(
        "mixed-5",
        'Write a slogan for a bakery. Use the word "fresh", at most 7 words, and end with "!".',
        (says("fresh"), most_words(7), ends("!")),
        good="Fresh bread every day!",
        bad="Fresh bread.",
    ),
    Instruction(
        "mixed-6",
        'Write at most 12 words about spring. Use the word "rain" and not the word "flowers".',
        (most_words(12), says("rain"), avoids("flower", "flowers")),
        good="In spring the rain is soft and warm.",
        bad="Rain brings flowers.",
    ),
    Instruction(
        "mixed-7",
        'Write a sentence with the word "storm". Use small letters only.',
        (says("storm"), lacks("small", "no capital letters", "[A-Z]")),
        good="a storm is coming.",
        bad="A storm is coming.",
    ),
    Instruction(
        "mixed-8",
        'Write two short sentences about the moon. The second begins with "It". At most 16 words in all.',
        (most_words(16), looks("second", 'a sentence that begins with "It" after another one', r"[.!] +It\b")),
        good="The moon is round. It shines at night.",
        bad="The moon is round.",
    ),
)

INSTRUCTIONS: Final = (*LENGTH, *SAYS, *AVOIDS, *LIST, *JSON, *ENDS, *ORDER, *MIXED)
