"""Plots that lead away from home: a wish, a lost thing."""

from __future__ import annotations

from beats import Story, Wanted, close, finish, meeting, opening, set_stage, tells, thanks, weather
from grammar import Scene
from lexicon import OBJECTS, PLACES
from obstacles import OBSTACLES
from wishes import WISHES


def fits(tags: frozenset[str], avoid: str) -> bool:
    return not set(avoid.split()) & tags


def wish(scene: Scene, wanted: Wanted) -> Story:
    """The hero longs for something, meets an obstacle, is helped, arrives."""
    s = scene
    hero, helper = set_stage(s, wanted)
    goal = s.pick([w for w in WISHES if fits(hero.kind.tags, w.avoid)])
    if goal.seasons:
        s.set(season=s.pick(goal.seasons))
    season = s.value("season")
    block = s.pick([o for o in OBSTACLES if fits(hero.kind.tags, o.avoid) and (not o.seasons or season in o.seasons)])
    s.set(
        wish=s.fill(goal.do),
        wishme=s.fill(goal.do).replace("his ", "my ").replace("her ", "my "),
        dest=s.fill(goal.dest),
        ob=block.a,
        theob=block.the,
        advice=s.fill(s.pick(block.advice)),
    )
    p1 = [
        opening(s),
        s.say(
            "More than anything else, {n} wanted to {wish}.",
            "{N} had one big wish: {he} wanted to {wish}.",
            "Every night {he} dreamed of only one thing: {he} wanted to {wish}.",
            "For a long time {n} had wanted to {wish}.",
            "There was one thing {n} wanted to do: {he} wanted to {wish}.",
            "All year long {r} had wished to {wish}.",
        ),
    ]
    if s.chance(0.8):
        p1.append(s.say(*goal.why))
    p2 = [
        s.say(
            "{Oneday} {n} packed [some bread|a small bag|{food}] and set off.",
            "{Oneday} {he} decided to go at last.",
            '"[Today is the day|I am going today|Now or never]!" {said} {n} {oneday}.',
            '{Oneday} {n} said to {elder}, "I want to {wishme}." "[Then go|Go, and be '
            'careful|Then you must try]," {ans} {elder}.',
            "{Oneday} {he} put on {his} [warm scarf|old hat|best scarf] and left home.",
        ),
        weather(s) if s.chance(0.6) else "",
        s.say(
            "{N} {walked} {along} and {along2}.",
            "{He} {walked} {along}, and {birds} sang above {him}.",
            "The way led {along}.",
            "{N} {walked} {along}, and {he} hummed a song.",
            "All morning {he} {walked} {along}.",
        ),
        s.say("{rest}") if s.chance(0.4) else "",
    ]
    p3 = [
        s.say(
            "But {soon} {he} came to {ob}.",
            "But then {ob} blocked {his} way.",
            "Everything went well until {he} came to {ob}.",
            "{Soon} {n} stopped, for in front of {him} was {ob}.",
            "Halfway to {dest}, {r} came to {ob}.",
        ),
        s.say(*block.trouble),
        s.say(*block.attempt) if s.chance(0.8) else "",
        s.say(
            '"{Ohno}," {said} {n}. "[How will I ever get there|How can I {wishme} now|What shall I do]?"',
            "{N} was {sad}.",
            "{N} sat down and did not know what to do.",
            '"I cannot do this alone," {said} {n} {sadly}.',
        ),
    ]
    p4 = [
        meeting(s),
        tells(s) if s.chance(0.6) else s.say('"I want to {wishme}, but I cannot get past {theob}," {said} {n}.'),
        s.say(
            '"{Comfort}. {advice}," {ans} {fn}.',
            '"{advice}," {said} {fn}.',
            '{Fn} thought for a moment. "{advice}," {fhe} said.',
            '"That is not so hard," {said} {fn}. "{advice}."',
        ),
        s.say(*block.solve),
        thanks(s) if s.chance(0.7) else "",
    ]
    p5 = [
        s.say(
            "At last {n} reached {dest}.",
            "And then, at last, they came to {dest}.",
            "They went on together and {soon} reached {dest}.",
            "In the [evening|afternoon] {he} finally came to {dest}.",
            "{The_rest} of the way was easy, and {soon} {n} stood at {dest}.",
        ),
        " ".join(s.fill(x) for x in s.rng.sample(goal.arrive, s.pick((2, 2, 3)) if len(goal.arrive) > 2 else 1)),
        s.say(
            '"{Great}!" {cried} {n}.',
            '"It is even better than I had dreamed," {said} {n}.',
            "{N}'s wish had come true.",
            "Now {n}'s greatest wish had come true.",
            '"I did it!" {cried} {n}.',
        ),
    ]
    p6 = [close(s, s.pick(("help", "courage", "search", "help")))]
    return finish(
        s,
        join(p1, p2, p3, p4, p5, p6),
        hero,
        helper,
        [
            "@ {k} who wants to {wish}",
            "@ {k} who wanted to {wish}",
            "@ {trait} {k} who wants to {wish}",
            "@ {k} named {n} who wants to {wish}",
            "a journey",
            "a wish that comes true",
            "an adventure",
        ],
        [
            ("What did {n} want?", "{N} wanted to {wish}."),
            ("What did the {k} want to do?", "The {k} wanted to {wish}."),
            ("What was the wish of the {k}?", "The {k} wanted to {wish}."),
            ("What was in the way?", "{Theob} was in the way."),
            ("What stopped {n}?", "{N} was stopped by {ob}."),
            ("Where did {n} go?", "{N} went to {dest}."),
            ("Did {n} reach {dest}?", "Yes, {n} reached {dest} in the end."),
        ],
    )


def join(*paragraphs: list[str]) -> list[str]:
    """Lists of sentences, some empty, to paragraphs."""
    return [" ".join(x for x in p if x) for p in paragraphs]


FOUND_HOW = (
    "It hung on a branch, high up in @ {tree}",
    "It was stuck between two stones",
    "It lay under a heap of leaves",
    "It had rolled under a bench",
    "It lay in the tall grass",
    "It was in the nest of a magpie",
    "It was floating in a puddle",
    "It was behind an old barrel",
)
LOST_HOW = (
    "The wind must have taken it",
    "It must have fallen out of {his} bag",
    "A magpie had carried it off",
    "It had slipped out of {his} {hands}",
    "{He} had put it down somewhere and forgotten where",
)


def lost(scene: Scene, wanted: Wanted) -> Story:
    """A treasured thing is gone; the hero asks, searches, and finds it with help."""
    s = scene
    hero, helper = set_stage(s, wanted)
    word, looks = s.pick(OBJECTS)
    spots = s.rng.sample(PLACES, 3)
    s.set(
        o=s.pick(looks) + " " + word,
        ob=word,
        p1=spots[0],
        p2=spots[1],
        p3=spots[2],
        giver=s.value("elder"),
        losthow=s.fill(s.pick(LOST_HOW)),
        how=s.fill(s.pick(FOUND_HOW)),
    )
    p1 = [
        opening(s),
        s.say(
            "{N} had @ {o} that {he} loved more than anything else.",
            "{His} greatest treasure was @ {o}.",
            "{Giver} had given {him} @ {o}, and {n} took it everywhere.",
            "Wherever {he} went, {he} always took {his} {o} with {him}.",
            "For {his} birthday {n} had been given @ {o} by {giver}.",
        ),
    ]
    p2 = [
        s.say(
            "But {oneday} the {o} was gone.",
            "But {oneday}, when {n} woke up, {he} could not find the {o}.",
            "{Oneday} {n} looked for {his} {o}, but it was nowhere to be found.",
            "Then, {oneday}, something bad happened: the {o} was lost.",
        ),
        s.say("{losthow}."),
        s.say(
            '"{Ohno}, where is my {ob}?" {cried} {n}.',
            "{N} looked under the bed, behind the door and in every corner.",
            "{N} was {sad}.",
            '"I must find it before dark," {said} {n}.',
            "A tear ran down {his} face.",
        ),
        weather(s) if s.chance(0.3) else "",
    ]
    p3 = [
        s.say(
            "First {n} went to {p1}. The {ob} was not there.",
            "{He} searched at {p1}, but {he} found only [an old shoe|a wet leaf|a few acorns|some feathers].",
            "{N} ran to {p1} and looked everywhere, but there was no {ob}.",
        ),
        s.say(
            'Then {he} asked {stranger} at {p2}. "[I have not seen your {ob}|No, I am sorry|I have '
            'only seen the clouds today]," {ans} {stranger}.',
            'At {p2} {he} met {stranger}. "Have you seen @ {o}?" asked {n}. "No," {ans} '
            '{stranger}, "[but I will keep my eyes open|but do not give up|but I wish you luck]."',
            "{Then} {he} looked near {p2}. There was nothing there [but dust|but the wind|but a sleeping beetle].",
        ),
    ]
    p4 = [
        meeting(s),
        s.say(
            '"I have lost my {o}," {said} {n} {sadly}.',
            '"My {o} is gone," {said} {n}. "I have looked everywhere."',
        ),
        s.say(
            '"{Comfort}. Let us look together," {said} {fn}. "[Four eyes see more than two|Two '
            'can search better than one|We will find it]."',
            '"I saw something {shine} near {p3} this morning," {said} {fn}. "Come with me!"',
            '"Where did you have it last?" {asked} {fn}. {N} thought hard. "At {p3}!" {he} {cried}.',
            '"I think I know where it is," {said} {fn}. "Let us go to {p3}."',
        ),
    ]
    p5 = [
        s.say(
            "Together they went to {p3}.",
            "They hurried to {p3}, side by side.",
            "So {n} and {fn} walked to {p3}.",
        ),
        s.say(
            "And there it was! {how}.",
            "They looked and looked, and at last they found the {o}. {how}.",
            'Suddenly {fn} {cried}, "Look!" {how}.',
        ),
        s.say(
            "{Fn} {got} the {ob} and gave it back to {n}.",
            "{Fn} pushed and {n} pulled, and then {n} held the {ob} in {his} {hands} again.",
            "With a long stick they got it out, and {n} hugged the {o}.",
        ),
        s.say('"{Great}!" {cried} {n}.', "{N} jumped for joy.", ""),
        thanks(s),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, p5, [close(s, s.pick(("help", "kindness", "search")))]),
        hero,
        helper,
        [
            "@ {o}",
            "a lost {ob}",
            "@ {k} who lost @ {o}",
            "@ {k} who loses {his} {ob}",
            "@ {k} and @ {o}",
            "@ {k} who is looking for @ {o}",
        ],
        [
            ("What did {n} lose?", "{N} lost @ {o}."),
            ("What was lost?", "The {o} was lost."),
            ("Where did they find the {ob}?", "They found the {ob} at {p3}."),
            ("Where was the {ob}?", "The {ob} was at {p3}."),
            (
                "What color was the {ob}?"
                if s.value("o").split()[0]
                in ("red", "blue", "yellow", "green", "white", "purple", "orange", "pink", "brown")
                else "Did {n} find the {ob}?",
                "The {ob} was " + s.value("o").split()[0] + "."
                if s.value("o").split()[0]
                in ("red", "blue", "yellow", "green", "white", "purple", "orange", "pink", "brown")
                else "Yes, {n} found the {ob} with the help of {fn}.",
            ),
        ],
    )
