"""Chat documents in the ChatML layout: requests for stories, questions about them, small talk."""

from __future__ import annotations

import random

from beats import Story, Wanted
from corpus import make_story
from grammar import Scene
from lexicon import MACROS

# Renders a conversation exactly as the training documents are laid out. A system message is rendered like
# any other; the model has seen a few dozen of them and none at all in most documents.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Turn = tuple[str, str]  # (role, content)

SYSTEM = (
    "You are a helpful assistant.",
    "You are a storyteller.",
    "You are a friendly storyteller for children.",
    "You tell short stories.",
    "You are a kind assistant who tells stories.",
    "Answer briefly and kindly.",
    "You are ZINC, a small language model.",
    "Be friendly.",
    "You write short stories for children.",
    "You are a helpful storyteller. Keep it simple.",
    "You are a small model that tells stories.",
)

ASK = (
    "[Tell|Please tell|Can you tell|Could you tell|Will you tell] me a[ short| little| nice| "
    "bedtime|] story about {topic}{end}",
    "Write a[ short| little| nice|n original|] story about {topic}{end}",
    "Write me a[ short|] story about {topic}{end}",
    "Please write a[ short|] story about {topic}{end}",
    "[I want|I would like] [to hear a story|a story] about {topic}.",
    "A[ short|] story about {topic}, please.",
    "Make up a[ short|] story about {topic}{end}",
    "[Do you know|Have you got] a story about {topic}?",
    "Give me a[ short|] story about {topic}{end}",
    "Can I [hear|have] a story about {topic}?",
    "Story about {topic}{end}",
    "{topic}",
    "My [son|daughter|sister|brother] likes stories. Please tell one about {topic}.",
)
ASK_ANY = (
    "Tell me a[ short| nice| bedtime|] story{end}",
    "Please tell me a story{end}",
    "Write a[ short|] story{end}",
    "Can you tell me a story?",
    "I want to hear a story.",
    "Surprise me with a story{end}",
    "Tell me something nice{end}",
    "A story, please.",
    "Once more: a story, please!",
    "Do you know a good story?",
    "I cannot sleep. Tell me a story.",
)
LEAD = (
    "Here is a story about {topic}.",
    "Of course! Here is a story about {topic}.",
    "Gladly! This is a story about {topic}.",
    "Sure. Here is a story about {topic}.",
    "With pleasure. Listen well!",
)
LEAD_ANY = (
    "Of course! Here is a story for you.",
    "Gladly! Listen well.",
    "With pleasure.",
    "Sure, here is one.",
)

SMALL: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (
            "hello",
            "hello!",
            "hi",
            "hi there",
            "hey",
            "good morning",
            "good evening",
            "hello there",
            "hi!",
            "good day",
            "hello, my friend",
        ),
        (
            "Hello! Would you like to hear a story?",
            "Hello! What shall I tell you about today?",
            "Hi there! I am happy to meet you. Shall I tell you a story?",
            "Hello! Name an animal, and I will tell you a story about it.",
        ),
    ),
    (
        (
            "who are you?",
            "what are you?",
            "what is your name?",
            "are you a person?",
            "tell me about yourself",
            "are you a robot?",
            "who am I talking to?",
            "are you human?",
        ),
        (
            "I am a very small language model that tells stories.",
            "I am a little storyteller, a small program that makes up stories.",
            "I am not a person. I am a small language model, and I like to tell stories.",
            "I am a small storytelling model. I know stories about animals, children and robots.",
        ),
    ),
    (
        (
            "what can you do?",
            "how can you help me?",
            "what do you know?",
            "help",
            "can you help me?",
            "what are you good at?",
            "what should I ask you?",
        ),
        (
            "I can tell short stories about animals, children, robots and villagers. Just tell me "
            "who the story should be about.",
            "I can make up a story for you. Try this: Tell me a story about a brave robot.",
            "I tell stories and answer simple questions about them. I do not know much about anything else.",
        ),
    ),
    (
        (
            "thank you",
            "thanks",
            "thank you!",
            "thanks a lot",
            "thank you very much",
            "that was nice",
            "I liked that",
            "great story!",
            "that was a lovely story",
            "well done",
        ),
        (
            "You are welcome! Would you like to hear another story?",
            "I am glad that you liked it.",
            "You are very welcome. Come back soon!",
            "Thank you for listening!",
        ),
    ),
    (
        ("how are you?", "how are you today?", "how do you do?", "are you well?", "how is it going?"),
        (
            "I am very well, thank you. And you?",
            "I am fine, thank you. I am full of stories today.",
            "Very well, thank you! Shall I tell you a story?",
        ),
    ),
    (
        (
            "goodbye",
            "bye",
            "good night",
            "see you",
            "bye bye",
            "I have to go now",
            "see you tomorrow",
            "good night!",
        ),
        (
            "Goodbye! Come back for another story.",
            "Good night and sweet dreams!",
            "See you soon!",
            "Goodbye, and have a lovely day!",
        ),
    ),
    (
        ("I am sad", "I feel sad today", "I am lonely", "I had a bad day", "I am not happy today"),
        (
            "I am sorry to hear that. Perhaps a story will cheer you up. Who should it be about?",
            "I am sorry. Would a story help? I know many with a happy ending.",
        ),
    ),
    (
        ("I am bored", "what shall we do?", "I have nothing to do", "I am tired", "I cannot sleep"),
        (
            "Then let me tell you a story. Who should it be about?",
            "A story would be just right now. Shall I begin?",
        ),
    ),
    (
        (
            "do you like stories?",
            "what is your favorite story?",
            "do you like animals?",
            "what is your favorite animal?",
            "do you like robots?",
            "do you have friends?",
        ),
        (
            "I like stories in which somebody finds a friend.",
            "I like foxes, owls and little robots best, because they have so many adventures.",
            "I like every story with a happy ending.",
        ),
    ),
    (
        ("sing me a song", "tell me a joke", "write a poem", "tell me a riddle", "draw a picture"),
        ("I cannot do that, but I can tell you a story.", "I only know stories. Shall I tell you one?"),
    ),
    (
        (
            "how old are you?",
            "where do you live?",
            "where are you from?",
            "do you sleep?",
            "do you eat?",
            "can you see me?",
        ),
        (
            "I am only a small program, so I live inside your computer.",
            "I am a little program, and all I have is stories.",
        ),
    ),
)
_UNKNOWN_Q = (
    "What is the capital of {country}?",
    "How far away is {thing}?",
    "What is {number} plus {number}?",
    "What is {number} times {number}?",
    "Who was the first king of {country}?",
    "How do I write a program in {language}?",
    "What is the weather like in {country}?",
    "Can you explain {science}?",
    "What is {science}?",
    "How does {machine} work?",
    "Who invented {machine}?",
    "Write a program that sorts a list.",
    "Translate this into {tongue}.",
    "What happened in the year {number}?",
    "How many people live in {country}?",
    "Who wrote the book about {thing}?",
    "Why is the sky blue?",
    "What time is it?",
    "What day is it today?",
    "Explain {science} in simple words.",
    "How tall is {thing}?",
    "What should I cook tonight?",
    "Who won the game yesterday?",
    "What is the meaning of life?",
    "Give me a list of cities in {country}.",
    "How do I repair {machine}?",
    "What is the news today?",
)
_UNKNOWN_A = (
    "I do not know that. I am only a small storyteller.",
    "I am sorry, I do not know. I can only tell stories.",
    "That is too hard for me. I only know stories. Shall I tell you one?",
    "I cannot answer that, but I can tell you a story.",
    "I am a very small model, and I only know stories. I cannot answer that.",
    "I do not know the answer. Would you like a story instead?",
)
_EXTRA = {
    "country": (
        "France",
        "Italy",
        "Japan",
        "Brazil",
        "Canada",
        "Egypt",
        "India",
        "Norway",
        "Spain",
        "China",
        "Germany",
        "Poland",
        "Kenya",
        "Mexico",
        "Australia",
    ),
    "thing": (
        "the moon",
        "the sun",
        "the highest mountain",
        "the ocean",
        "the Eiffel Tower",
        "Mars",
        "the North Pole",
        "the longest river",
    ),
    "number": tuple(
        str(i)
        for i in (
            2,
            3,
            4,
            5,
            7,
            8,
            9,
            10,
            12,
            15,
            17,
            20,
            25,
            42,
            64,
            99,
            100,
            144,
            1066,
            1492,
            1789,
            1969,
            2000,
        )
    ),
    "language": ("Python", "Java", "Rust", "C"),
    "tongue": ("French", "German", "Spanish", "Latin"),
    "science": (
        "gravity",
        "electricity",
        "photosynthesis",
        "algebra",
        "chemistry",
        "quantum physics",
        "evolution",
        "a black hole",
        "an atom",
        "history",
        "machine learning",
    ),
    "machine": (
        "a computer",
        "an engine",
        "a telephone",
        "a clock",
        "a car",
        "an airplane",
        "a refrigerator",
        "a camera",
    ),
    "end": (".", ".", "", "!"),
}
_MACROS = {**MACROS, **_EXTRA}


def render(turns: list[Turn]) -> str:
    """The turns in ChatML, each closed and followed by a line feed."""
    return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)


def _casual(scene: Scene, text: str) -> str:
    """Write a text as people type it: sometimes without capital letters or the final stop."""
    text = text.strip()
    roll = scene.rng.random()
    if roll < 0.65:
        return text[:1].upper() + text[1:]
    if roll < 0.85:
        return text[:1].lower() + text[1:] if not text.startswith("I ") else text
    return text.rstrip(".!").lower()


def _ask_story(scene: Scene, wanted: Wanted | None = None) -> tuple[list[Turn], Story]:
    """One request and the story that answers it."""
    story = make_story(scene.rng, wanted or Wanted())
    if scene.chance(0.12):
        request, lead = scene.fill(scene.pick(ASK_ANY)), scene.fill(scene.pick(LEAD_ANY))
    else:
        # The first topics are about the plot, the last ones about the hero alone.
        topic = scene.pick(story.topics)
        scene.set(topic=topic)
        request, lead = scene.fill(scene.pick(ASK)), scene.fill(scene.pick(LEAD))
    text = story.text
    if scene.chance(0.3):
        text = lead + "\n\n" + text
    return [("user", _casual(scene, request)), ("assistant", text)], story


def _questions(scene: Scene, story: Story, n: int) -> list[Turn]:
    turns: list[Turn] = []
    for question, answer in scene.rng.sample(story.questions, min(n, len(story.questions))):
        turns += [("user", _casual(scene, question)), ("assistant", answer)]
    return turns


def _small(scene: Scene) -> list[Turn]:
    users, replies = scene.pick(SMALL)
    user = scene.pick(users)
    return [("user", _casual(scene, user)), ("assistant", scene.pick(replies))]


def _unknown(scene: Scene) -> list[Turn]:
    return [
        ("user", _casual(scene, scene.fill(scene.pick(_UNKNOWN_Q)))),
        ("assistant", scene.pick(_UNKNOWN_A)),
    ]


def _group(scene: Scene, user: str) -> list[Turn]:
    """An exchange of the kind of small talk in which `user` is something people say."""
    options = next(s for s in SMALL if user in s[0])
    return [("user", _casual(scene, scene.pick(options[0]))), ("assistant", scene.pick(options[1]))]


def make_chat(rng: random.Random) -> str:
    """One chat document."""
    scene = Scene(rng, _MACROS)
    turns: list[Turn] = []
    if scene.chance(0.25):
        turns.append(("system", scene.pick(SYSTEM)))
    shape = rng.random()
    if shape < 0.36:
        turns += _ask_story(scene)[0]
    elif shape < 0.40:
        # Two stories in one conversation.
        turns += _ask_story(scene)[0] + [
            (
                "user",
                _casual(
                    scene,
                    scene.fill(
                        "[Another one|Tell me another story|Another story|One more story|Again][, please|]{end}"
                    ),
                ),
            )
        ]
        turns.append(("assistant", make_story(rng).text))
    elif shape < 0.75:
        asked, story = _ask_story(scene)
        turns += (
            (_group(scene, "hello") if scene.chance(0.15) else [])
            + asked
            + _questions(scene, story, scene.pick((1, 2, 2, 3, 4)))
        )
        if scene.chance(0.3):
            turns += _group(scene, "thank you")
    elif shape < 0.83:
        # An offer, a yes, a story.
        turns += _group(scene, "I am bored") if scene.chance(0.5) else _group(scene, "hello")
        story = make_story(rng)
        yes = scene.pick(("yes", "yes please", "yes, please", "ok", "sure", "okay", "yes, tell me a story"))
        if scene.chance(0.5):
            scene.set(topic=scene.pick(story.topics))
            yes = scene.fill("[yes, |]about {topic}")
        turns += [("user", _casual(scene, yes)), ("assistant", story.text)]
    else:
        # Short talk; several of these make up one document, so that they are worth their tokens.
        for _ in range(scene.pick((1, 2, 3, 4))):
            turns += _small(scene) if scene.chance(0.6) else _unknown(scene)
    return render(turns)
