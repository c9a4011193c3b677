"""Plots in which something is wrong: a mystery at night, a village in need."""

from __future__ import annotations

from beats import Story, Wanted, close, finish, opening, set_stage, weather
from grammar import Scene
from lexicon import PLACES
from plots_quest import join

MYSTERIES = (
    (
        "a strange knocking",
        "The knocking came again: knock, knock, knock",
        "a woodpecker had lost its way in the dark and was tapping at a shutter",
    ),
    ("a soft crying", "The crying grew louder", "a small kitten had climbed too high and could not get down"),
    (
        "a blue light",
        "The light moved slowly from side to side",
        "a firefly had got into an old glass jar and could not find the way out",
    ),
    (
        "a low humming",
        "The humming sounded almost like a song",
        "the wind was blowing over the neck of an empty bottle",
    ),
    (
        "a rustling in the dark",
        "Something rustled and stopped and rustled again",
        "a baby hedgehog was looking for its mother",
    ),
    ("a deep growl", "The growl seemed to come out of the ground", "an old dog was snoring in a barrel"),
    ("a silver glow", "The glow shone through every crack", "the moon was shining on a forgotten mirror"),
    (
        "a tiny voice",
        'The tiny voice called, "Hello! Hello!"',
        "a little parrot was sitting in a broken cage",
    ),
    ("a wild flapping", "The flapping went on and on", "a young bat had got caught in a curtain"),
    (
        "a strange shadow",
        "The shadow had long ears and a round back",
        "a little rabbit was sitting in front of a lantern",
    ),
)


def mystery(scene: Scene, wanted: Wanted) -> Story:
    """Something strange at night turns out to be harmless."""
    s = scene
    hero, helper = set_stage(s, wanted, not_trait="lonely brave")
    what, again, truth = s.pick(MYSTERIES)
    s.set(
        what=what,
        the="the " + what.split(" ", 1)[1],
        again=again,
        truth=truth,
        truth_c=truth[0].upper() + truth[1:],
        p1=s.pick(PLACES),
    )
    p1 = [
        opening(s),
        s.say(
            "{Oneday2} {n} {noticed} {what} near {p1}.",
            "{Oneday2}, when everyone was asleep, {n} {noticed} {what}. It came from {p1}.",
            "{Oneday2} {n} could not sleep. Then {he} {noticed} {what}, over by {p1}.",
        ),
    ]
    p2 = [
        s.say("{again}.") if s.chance(0.7) else "",
        s.say(
            '"[What can that be|Who is there|What is that]?" whispered {n}.',
            "{heart}",
            "{N} pulled the blanket up to {his} nose.",
        ),
        s.say(
            "The next morning nobody could say what it was.",
            '"It must be a ghost," {said} the neighbors. "Do not go there!"',
            '"It is surely a monster," {said} {stranger}, and shivered.',
            "Nobody dared to go and look.",
        ),
        s.say(
            "But {n} wanted to know the truth.",
            "But {r} could think of nothing else.",
            "{N} was a little afraid, but {he} was even more curious.",
        ),
    ]
    p3 = [
        s.say(
            '{N} went to {fn}, @ {adj2} {fk} who lived next door. "Will you come with me?" {he} asked.',
            'On the way {he} met {fn}, @ {fk} with @ {color} scarf. "Are you going to look, too?" asked {fn}.',
            "{He} told {his} friend {fn}, @ {adj2} {fk}, about it.",
        ),
        s.say(
            '"[Of course I will|Two are braver than one|Let us go tonight]," {ans} {fn}.',
            '"I am afraid, but I will come with you," {ans} {fn}.',
            '"Let us take a lantern and look," {said} {fn}.',
        ),
        s.say(
            "That night they crept to {p1}, close together.",
            "When it was dark, {n} and {fn} tiptoed to {p1}.",
            "As soon as the moon rose, the two friends set off for {p1}.",
        ),
        s.say(
            "{again}.",
            "Their steps were as soft as snow.",
            "An owl called, and both of them jumped.",
            "{deepbreath}",
        ),
    ]
    p4 = [
        s.say(
            "{N} lifted the lantern and looked.",
            "Then {n} pushed open a little door.",
            "Slowly {r} went closer.",
            "{Fn} held {his} {hands1}, and {n} looked around the corner.",
        ),
        s.say(
            "And what did they see? It was quite simple: {truth}.",
            "There was no monster at all: {truth}.",
            "Then they began to laugh, because {truth}.",
        ),
        s.say(
            '"[So that is all|And I was afraid of that]!" {cried} {n}.',
            "{Fn} laughed so much that {fhe} had to sit down.",
            '"There is nothing to be afraid of," {said} {fn}.',
        ),
        s.say(
            "The next day they told everyone, and soon all the neighbors were laughing with them.",
            "{Nextday} everyone wanted to hear the story, and {n} told it three times.",
            "They put everything right, and then it was quiet again.",
            "From then on everyone slept well.",
        ),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "listening")]),
        hero,
        helper,
        [
            "{what}",
            "@ {k} who hears something strange at night",
            "a mystery",
            "a strange night",
            "@ {k} who is not afraid of ghosts",
            "@ {k} and {what}",
        ],
        [
            ("What did {n} notice?", "{N} noticed {what}."),
            ("What was it?", "It was simple: {truth}."),
            ("Where did it happen?", "It happened near {p1}."),
            ("Was there a monster?", "No, there was no monster. {truth_c}."),
            ("Who went with {n}?", "{Fn}, the {fk}, went with {n}."),
        ],
    )


# (problem, cause, what is missing meanwhile, remedy, proof)
TROUBLES = (
    (
        "the village well was dry",
        "a big stone had rolled into the spring",
        "Nobody could wash or cook",
        "they rolled the stone aside",
        "clear water ran into the well again",
        "the well",
    ),
    (
        "the church clock had stopped",
        "a bird had built its nest between the wheels",
        "Everyone was late for everything",
        "they carried the nest carefully to a safe tree",
        "the clock began to tick again",
        "the clock",
    ),
    (
        "the windmill no longer turned",
        "a rope was wound around the axle",
        "There was no flour and no bread",
        "they cut the rope and greased the wheels",
        "the great sails began to turn",
        "the windmill",
    ),
    (
        "the lighthouse was dark",
        "the lamp had no oil left",
        "The boats could not find the harbor",
        "they carried oil up all the stairs",
        "the light shone far over the water",
        "the lighthouse",
    ),
    (
        "the bridge had fallen down",
        "the storm had broken the old beams",
        "Nobody could get to the market",
        "they laid new beams and hammered all day",
        "the first wagon rolled over the bridge",
        "the bridge",
    ),
    (
        "the mill stream was blocked",
        "branches and leaves had made a dam",
        "The mill wheel stood still",
        "they pulled the branches out one by one",
        "the water rushed, and the wheel turned again",
        "the stream",
    ),
    (
        "the bees had left the orchard",
        "there were no flowers left for them",
        "There was no honey for the cakes",
        "they sowed flowers along every path",
        "the bees came back, humming happily",
        "the bees",
    ),
    (
        "the street lamps did not burn",
        "the lamplighter was ill in bed",
        "The children were afraid to walk home",
        "they lit the lamps, one after the other",
        "the whole street glowed with light",
        "the lamps",
    ),
    (
        "the bakery oven was cold",
        "the chimney was full of old straw",
        "There was no bread for breakfast",
        "they swept the chimney from top to bottom",
        "the smell of fresh bread filled the air",
        "the oven",
    ),
    (
        "the garden was dying",
        "the little water pipe was broken",
        "The beans hung their heads",
        "they mended the pipe and watered every plant",
        "green leaves grew again",
        "the garden",
    ),
)


def village(scene: Scene, wanted: Wanted) -> Story:
    """Everyone has a problem; the hero looks for its cause and mends it."""
    s = scene
    hero, helper = set_stage(s, wanted)
    problem, cause, meanwhile, remedy, proof, thing = s.pick(TROUBLES)
    s.set(problem=problem, cause=cause, remedy=remedy, proof=proof, thing=thing)
    p1 = [
        opening(s),
        s.say(
            "{Oneday} there was great trouble: {problem}.",
            "But {oneday} {problem}.",
            "Then, {oneday}, everyone was upset, because {problem}.",
        ),
        s.say(meanwhile + "."),
    ]
    p2 = [
        s.say(
            "Nobody knew why.",
            "Everyone talked, but nobody did anything.",
            '"What shall we do?" the neighbors asked each other.',
            "Some shouted, some cried, and some just went to bed.",
        ),
        s.say(
            '"Somebody must find out what is wrong," {said} {n}. "I will go and look."',
            '{think} Then {he} said, "There must be a reason."',
            '"I want to help," {said} {n}, but the others only shook their heads.',
            '"Let me try," {said} {n}. "You are only @ {k}," {said} {stranger}. But {n} went anyway.',
        ),
    ]
    p3 = [
        s.say(
            "{N} asked {fn}, @ {adj2} {fk}, to come along.",
            "Only {fn}, @ {adj2} {fk}, came with {him}.",
            "On the way {he} met @ {fk} named {fn}, who wanted to help.",
        ),
        weather(s) if s.chance(0.3) else "",
        s.say(
            "They looked here and there, high and low.",
            "For a long time they found nothing.",
            "They walked around {thing} three times and looked at everything.",
            "{N} looked with open eyes, and {fn} listened.",
        ),
        s.say(
            "At last they saw what was wrong: {cause}.",
            "Then {fn} found it: {cause}.",
            '"Look!" {cried} {n}. Now they could see it: {cause}.',
            "Suddenly {n} understood. {Cause}!",
        ),
    ]
    p4 = [
        s.say(
            "It was hard work, but {remedy}.",
            "They did not wait for anyone. At once {remedy}.",
            "Together {remedy}.",
            '"One, two, three!" {cried} {fn}, and {remedy}.',
        ),
        s.say(
            "And then {proof}.",
            "A moment later {proof}.",
            "Everyone came running, and before their eyes {proof}.",
        ),
        s.say(
            '"Three cheers for {n} and {fn}!" everyone shouted.',
            "All the neighbors clapped and cheered.",
            "There was a big feast with {food} and music.",
            '{Stranger} said, "I am sorry that I did not believe in you."',
        ),
        s.say('"We did it together," {said} {n}.', "{N} smiled at {fn}.", ""),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, s.pick(("help", "kindness", "search")))]),
        hero,
        helper,
        [
            "@ {k} who helps the village",
            "{thing}",
            "@ {k} who helps everyone",
            "a village with a problem",
            "@ {k} and @ {fk} who help everyone",
            "teamwork",
        ],
        [
            ("What was the problem?", "The problem was that {problem}."),
            ("Why was there trouble?", "There was trouble because {cause}."),
            ("What did they do?", "[They helped: {remedy}.|In the end {remedy}.]"),
            ("What happened at the end?", "At the end {proof}."),
            ("Who came with {n}?", "{Fn}, the {fk}, came with {n}."),
        ],
    )
