"""Passages that every plot shares: openings, meetings, endings, morals."""

from __future__ import annotations

from dataclasses import dataclass, field

from cast import FEARFUL_TRAITS, TRAITS, Character, introduce, introduce_elder, make_character
from grammar import Scene
from lexicon import MORALS, SEASONS, SETTINGS, STRANGERS


@dataclass
class Story:
    """A finished story with what is needed to ask for it and to ask about it."""

    paragraphs: list[str]
    hero: Character
    helper: Character
    trait: str
    topics: list[str]  # each follows "a story about"
    questions: list[tuple[str, str]] = field(default_factory=list)  # (question, correct answer)

    @property
    def text(self) -> str:
        """The story as one text, with a blank line between paragraphs."""
        return "\n\n".join(self.paragraphs)


@dataclass(frozen=True)
class Wanted:
    """The wishes of a prompt; empty fields are free."""

    kind: str = ""
    trait: str = ""
    plot: str = ""


def set_stage(
    scene: Scene,
    wanted: Wanted,
    *,
    avoid: str = "",
    seasons: tuple[str, ...] = (),
    fearful: bool = False,
    not_trait: str = "",
    helper_groups: tuple[str, ...] = (),
    helper_avoid: str = "",
    groups: tuple[str, ...] = (),
) -> tuple[Character, Character]:
    """Choose hero, helper, trait, season and setting and put them into the scene."""
    hero = make_character(scene, [], groups, avoid, wanted.kind)
    helper = make_character(scene, [hero], helper_groups, helper_avoid)
    introduce(scene, hero)
    introduce(scene, helper, "f")
    introduce_elder(scene, hero)
    trait = wanted.trait or scene.pick(
        [t for t in (FEARFUL_TRAITS if fearful else TRAITS) if t not in not_trait.split()]
    )
    season = scene.pick(seasons or tuple(SEASONS))
    where, place = scene.pick(SETTINGS)
    adjective = scene.pick(
        ("little", "young", "small")
        if hero.kind.group in ("animal", "robot", "child")
        else ("young", "friendly", "cheerful", "good")
    )
    if "young" in hero.kind.tags:
        adjective = "little"
    scene.set(stranger=scene.pick(STRANGERS))  # one per story: who says "no" must be who was asked
    scene.set(trait=trait, season=season, where=where, place=place, adj=adjective)
    return hero, helper


def opening(scene: Scene) -> str:
    """The opening: the hero and the place of the story."""
    s = scene
    first = s.pick(
        (
            "Once upon a time there was @ {trait} {k} named {n}, who lived {where}.",
            "Once upon a time, {where}, there lived @ {trait} {k} named {n}.",
            "Once upon a time there lived @ {adj} {k} called {n}. {He} lived in {home}.",
            "Once upon a time @ {trait} {adj} {k} named {n} lived in {home}.",
            "Once upon a time, {where}, @ {k} named {n} lived in {home}.",
            "Long ago, {where}, there lived @ {trait} {k} by the name of {n}.",
            "Long, long ago there was @ {adj} {k} whose name was {n}. {He} lived in {home}.",
            "There was once @ {trait} {k} called {n}, who lived in {home}.",
            "{Where} lived @ {k} named {n}. [Everyone said that {n} was @ {trait} {k}.|{N} was very {trait}.]",
            "{N} was @ {trait} {k} who lived in {home}.",
            "In {home} lived @ {trait} {k} named {n}.",
            "This is the story of {n}, @ {trait} {k} who lived {where}.",
            "Not so long ago, @ {adj} {k} named {n} lived {where}.",
            "Do you know {n}? {N} was @ {trait} {k} who lived {where}.",
            "Many years ago, when {the_old} was still young, there lived @ {trait} {k} named {n}.",
        )
    )
    s.set(the_old=s.pick(("the old mill", "the great oak", "the church tower", "your grandmother")))
    parts = [s.say(first)]
    shown_later = False
    if s.chance(0.75):
        line = s.pick(TRAITS[s.value("trait")])
        if "{trait}" not in first:
            shown_later = True
            parts.append(s.say("{N} was @ {trait} {k}.", "{He} was known as @ {trait} {k}.", "{He} was very {trait}."))
        parts.append(s.say(line))
    if s.chance(0.4):
        parts.append(s.say(*SEASONS[s.value("season")]))
    s.set(told=first + ("{trait}" if shown_later else ""))  # which adjectives the reader has seen
    return " ".join(parts)


def weather(scene: Scene) -> str:
    return scene.say(*SEASONS[scene.value("season")])


def meeting(scene: Scene) -> str:
    """The helper enters; afterwards the name of the helper is known."""
    return scene.say(
        'Just then @ {fk} came [along|by|down the path]. "{Hello}! My name is {fn}," {fhe} '
        'said. "[Why do you look so sad|What is the matter|Can I help you]?"',
        'At that moment {he} met @ {fk} named {fn}. "[What are you doing here|Where are you '
        'going|What happened]?" {asked} {fn}.',
        'Then {he} heard a friendly voice. It was {fn}, @ {fk} who lived nearby. "[Is something '
        'wrong|May I help you]?" {fhe} asked.',
        '@ {adj2} {fk} named {fn} was [sitting|resting|waiting] under @ {tree}. "{Hello}," '
        '{said} {fn}. "[What brings you here|Why are you so quiet|Do you need help]?"',
        "After a while @ {fk} came past. {Fhis} name was {fn}, and {fhe} was never in a hurry. "
        '"[Tell me what happened|Tell me your trouble]," {said} {fn} {softly}.',
        '"[Who is there|Is somebody there]?" called a voice. Out [of the bushes|from behind a '
        "wall] came {fn}, @ {adj2} {fk}.",
        'A friendly {fk} called {fn} had seen everything. {Fhe} came closer and asked, "[Shall '
        'I help you|May I sit with you|Do you want some help]?"',
    )


def tells(scene: Scene) -> str:
    """The hero explains; the slot {trouble} names the matter in a clause."""
    return scene.say(
        "{N} told {fhim} everything.",
        "{N} told {fhim} the whole story.",
        "So {r} explained {softly} what had happened.",
        '"I need help," {said} {n} {softly}, and then {he} told {fhim} everything.',
        "{N} was glad that somebody asked, and {he} told {fhim} all about it.",
    )


def thanks(scene: Scene) -> str:
    return scene.say(
        '"{Thanks}, {fn}!" {cried} {n}.',
        '"{Thanks}," {said} {n} {happily}. "[Without you I could not have done it|I will '
        'never forget this|You are a true friend]."',
        "{N} thanked {fn} and gave {fhim} [a hug|a big hug|half of {his} bread].",
        '"How can I thank you?" asked {n}. "[Just be my friend|You just did|You would have '
        'done the same]," {ans} {fn}.',
        "{N} thanked {fr} from the bottom of {his} heart.",
        '"I am so glad that I met you," {said} {n} to {fn}.',
    )


def moral(scene: Scene, theme: str) -> str:
    lesson = scene.pick(MORALS[theme])
    scene.set(lesson=lesson)
    return scene.say(
        "From that day on, {n} knew that {lesson}.",
        "And so {n} learned that {lesson}.",
        "{N} had learned that {lesson}.",
        '"Now I know that {lesson}," {said} {n}.',
        "And if you ask {n} today, {he} will tell you that {lesson}.",
        '{Elder} smiled. "You see, {lesson}," {ehe} said.',
        "That day {n} understood that {lesson}.",
    )


def ending(scene: Scene) -> str:
    return scene.say(
        "{N} and {fn} stayed friends for the rest of their lives.",
        "From then on, {n} and {fn} met every day.",
        "That night {n} fell asleep with a smile.",
        "And they all lived happily ever after.",
        "And that is how {n} and {fn} became the best of friends.",
        "In the evening they ate {food} together and laughed about the whole adventure.",
        "When the moon rose, {n} was already dreaming of the next adventure.",
        "{N} went home tired and {happy}.",
        "Then they walked home together, and the stars came out one by one.",
        "And whenever it {rains}, {n} and {fn} still talk about that day.",
        "They sat together until the fire burned low, and nobody was in a hurry.",
        "At home everyone ate {food}, and nothing had ever tasted so good.",
        "They told the story again and again, and each time it grew a little longer.",
    )


def close(scene: Scene, theme: str) -> str:
    """Feeling, moral and last sentence, in varying company."""
    scene.set(rains=scene.pick(("rains", "snows", "is windy", "gets dark")))
    parts = []
    if scene.chance(0.5):
        parts.append(
            scene.say(
                "{N} was very {happy1}.",
                "{N} felt warm inside.",
                "{N} had never been so {happy1}.",
                "{N} could not stop smiling.",
                "{His} heart felt as light as a feather.",
            )
        )
    if scene.chance(0.75):
        parts.append(moral(scene, theme))
    if not parts or scene.chance(0.75):
        parts.append(ending(scene))
    return " ".join(parts)


def finish(
    scene: Scene,
    paragraphs: list[str],
    hero: Character,
    helper: Character,
    topics: list[str],
    questions: list[tuple[str, str]],
    *,
    helps: bool = True,
) -> Story:
    """Fill topics and questions with the facts of the scene, and add those that fit every story."""
    common = [
        (
            "What was the name of the {k}?",
            "[The name of the {k} was {n}.|The {k} was called {n}.|{His} name was {n}.]",
        ),
        ("Who was {n}?", "{N} was @ {trait} {k}."),
    ]
    assisted = [
        (
            "Who helped {n}?",
            "[{Fn} helped {n}.|{Fn} the {fk} helped {n}.|It was {fn}, the {fk}, who helped {n}.]",
        ),
        ("Who was {fn}?", "{Fn} was @ {fk} who helped {n}."),
        ("Who helped the {k}?", "[The {fk} helped the {k}.|{Fn}, the {fk}, helped the {k}.]"),
        ("Who was kind to {n}?", "{Fn} was kind to {n}."),
    ]
    common += assisted if helps else [("Who was {fn}?", "{Fn} was @ {fk} and a friend of {n}.")]
    common += [
        (
            "What kind of animal was {fn}?" if helper.kind.group == "animal" else "Was {fn} a friend of {n}?",
            "{Fn} was @ {fk}." if helper.kind.group == "animal" else "Yes, {fn} was a friend of {n}.",
        ),
        ("How did {n} feel at the end?", "[At the end, {n} was happy.|{N} felt happy at the end.]"),
    ]
    told = scene.value("told")
    if "{trait}" not in told:
        common[1] = ("Who was {n}?", "{N} was @ {k}.")
    filled = [(scene.say(q), scene.say(a)) for q, a in common + questions]
    topics += [
        "@ {trait} {k}",
        "@ {k} named {n}",
        "@ {trait} {k} named {n}",
        "@ {k}",
        "@ {k} and @ {fk}",
        "@ {adj} {k}",
        "@ {trait} {k} and @ {fk}",
        "@ {k} called {n}",
    ]
    # A request may only name an adjective that the story then uses.
    topic = [scene.fill(t) for t in topics if all(a in told for a in ("{trait}", "{adj}") if a in t)]
    return Story(paragraphs, hero, helper, scene.value("trait"), topic, filled)
