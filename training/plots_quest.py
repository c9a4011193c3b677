"""Plots that lead away from home: a wish, a lost thing, a mystery, a village in need."""

from __future__ import annotations

from beats import Story, Wanted, close, finish, meeting, opening, set_stage, tells, thanks, weather
from grammar import Scene
from lexicon import OBJECTS, PLACES
from wishes import OBSTACLES, WISHES


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
    s.set(wish=s.fill(goal.do), wishme=s.fill(goal.do).replace("his ", "my ").replace("her ", "my "), dest=s.fill(goal.dest), ob=block.a, theob=block.the,
          advice=s.fill(s.pick(block.advice)))
    p1 = [opening(s), s.say(
        "More than anything else, {n} wanted to {wish}.", "{N} had one big wish: {he} wanted to {wish}.",
        "Every night {he} dreamed of only one thing: {he} wanted to {wish}.", "For a long time {n} had wanted to {wish}.",
        "There was one thing {n} wanted to do: {he} wanted to {wish}.", "All year long {r} had wished to {wish}.")]
    if s.chance(0.8):
        p1.append(s.say(*goal.why))
    p2 = [s.say(
        "{Oneday} {n} packed [some bread|a small bag|{food}] and set off.", "{Oneday} {he} decided to go at last.",
        "\"[Today is the day|I am going today|Now or never]!\" {said} {n} {oneday}.",
        "{Oneday} {n} said to {elder}, \"I want to {wishme}.\" \"[Then go|Go, and be careful|Then you must try],\" {ans} {elder}.",
        "{Oneday} {he} put on {his} [warm scarf|old hat|best scarf] and left home."),
        weather(s) if s.chance(0.6) else "",
        s.say("{N} {walked} {along} and {along2}.", "{He} {walked} {along}, and {birds} sang above {him}.",
              "The way led {along}.", "{N} {walked} {along}, and {he} hummed a song.", "All morning {he} {walked} {along}."),
        s.say("{rest}") if s.chance(0.4) else ""]
    p3 = [s.say("But {soon} {he} came to {ob}.", "But then {ob} blocked {his} way.",
                "Everything went well until {he} came to {ob}.", "{Soon} {n} stopped, for in front of {him} was {ob}.",
                "Halfway to {dest}, {r} came to {ob}."),
          s.say(*block.trouble), s.say(*block.attempt) if s.chance(0.8) else "",
          s.say("\"{Ohno},\" {said} {n}. \"[How will I ever get there|How can I {wishme} now|What shall I do]?\"",
                "{N} was {sad}.", "{N} sat down and did not know what to do.", "\"I cannot do this alone,\" {said} {n} {sadly}.")]
    p4 = [meeting(s), tells(s) if s.chance(0.6) else s.say("\"I want to {wishme}, but I cannot get past {theob},\" {said} {n}."),
          s.say("\"{Comfort}. {advice},\" {ans} {fn}.", "\"{advice},\" {said} {fn}.",
                "{Fn} thought for a moment. \"{advice},\" {fhe} said.", "\"That is not so hard,\" {said} {fn}. \"{advice}.\""),
          s.say(*block.solve), thanks(s) if s.chance(0.7) else ""]
    p5 = [s.say("At last {n} reached {dest}.", "And then, at last, they came to {dest}.", "They went on together and {soon} reached {dest}.",
                "In the [evening|afternoon] {he} finally came to {dest}.", "{The_rest} of the way was easy, and {soon} {n} stood at {dest}."),
          " ".join(s.fill(x) for x in s.rng.sample(goal.arrive, s.pick((2, 2, 3)) if len(goal.arrive) > 2 else 1)),
          s.say("\"{Great}!\" {cried} {n}.", "\"It is even better than I had dreamed,\" {said} {n}.", "{N}'s wish had come true.",
                "Now {n}'s greatest wish had come true.", "\"I did it!\" {cried} {n}.")]
    p6 = [close(s, s.pick(("help", "courage", "search", "help")))]
    return finish(s, join(p1, p2, p3, p4, p5, p6), hero, helper,
                  ["@ {k} who wants to {wish}", "@ {k} who wanted to {wish}", "@ {trait} {k} who wants to {wish}",
                   "@ {k} named {n} who wants to {wish}", "a journey", "a wish that comes true", "an adventure"],
                  [("What did {n} want?", "{N} wanted to {wish}."), ("What did the {k} want to do?", "The {k} wanted to {wish}."),
                   ("What was the wish of the {k}?", "The {k} wanted to {wish}."),
                   ("What was in the way?", "{Theob} was in the way."), ("What stopped {n}?", "{N} was stopped by {ob}."),
                   ("Where did {n} go?", "{N} went to {dest}."), ("Did {n} reach {dest}?", "Yes, {n} reached {dest} in the end.")])


def join(*paragraphs: list[str]) -> list[str]:
    """Lists of sentences, some empty, to paragraphs."""
    return [" ".join(x for x in p if x) for p in paragraphs]


FOUND_HOW = (
    "It hung on a branch, high up in @ {tree}", "It was stuck between two stones", "It lay under a heap of leaves",
    "It had rolled under a bench", "It lay in the tall grass", "It was in the nest of a magpie",
    "It was floating in a puddle", "It was behind an old barrel",
)
LOST_HOW = (
    "The wind must have taken it", "It must have fallen out of {his} bag", "A magpie had carried it off", "It had slipped out of {his} {hands}",
    "{He} had put it down somewhere and forgotten where",
)


def lost(scene: Scene, wanted: Wanted) -> Story:
    """A treasured thing is gone; the hero asks, searches, and finds it with help."""
    s = scene
    hero, helper = set_stage(s, wanted)
    word, looks = s.pick(OBJECTS)
    spots = s.rng.sample(PLACES, 3)
    s.set(o=s.pick(looks) + " " + word, ob=word, p1=spots[0], p2=spots[1], p3=spots[2], giver=s.value("elder"),
          losthow=s.fill(s.pick(LOST_HOW)), how=s.fill(s.pick(FOUND_HOW)))
    p1 = [opening(s), s.say(
        "{N} had @ {o} that {he} loved more than anything else.", "{His} greatest treasure was @ {o}.",
        "{Giver} had given {him} @ {o}, and {n} took it everywhere.", "Wherever {he} went, {he} always took {his} {o} with {him}.",
        "For {his} birthday {n} had been given @ {o} by {giver}.")]
    p2 = [s.say("But {oneday} the {o} was gone.", "But {oneday}, when {n} woke up, {he} could not find the {o}.",
                "{Oneday} {n} looked for {his} {o}, but it was nowhere to be found.", "Then, {oneday}, something bad happened: the {o} was lost."),
          s.say("{losthow}."), s.say("\"{Ohno}, where is my {ob}?\" {cried} {n}.", "{N} looked under the bed, behind the door and in every corner.",
          "{N} was {sad}.", "\"I must find it before dark,\" {said} {n}.", "A tear ran down {his} face."), weather(s) if s.chance(0.3) else ""]
    p3 = [s.say("First {n} went to {p1}. The {ob} was not there.", "{He} searched at {p1}, but {he} found only [an old shoe|a wet leaf|a few acorns|some feathers].",
                "{N} ran to {p1} and looked everywhere, but there was no {ob}."),
          s.say("Then {he} asked {stranger} at {p2}. \"[I have not seen your {ob}|No, I am sorry|I have only seen the clouds today],\" {ans} {stranger}.",
                "At {p2} {he} met {stranger}. \"Have you seen @ {o}?\" asked {n}. \"No,\" {ans} {stranger}, \"[but I will keep my eyes open|but do not give up|but I wish you luck].\"",
                "{Then} {he} looked near {p2}. There was nothing there [but dust|but the wind|but a sleeping beetle].")]
    p4 = [meeting(s), s.say("\"I have lost my {o},\" {said} {n} {sadly}.", "\"My {o} is gone,\" {said} {n}. \"I have looked everywhere.\""),
          s.say("\"{Comfort}. Let us look together,\" {said} {fn}. \"[Four eyes see more than two|Two can search better than one|We will find it].\"",
                "\"I saw something {shine} near {p3} this morning,\" {said} {fn}. \"Come with me!\"",
                "\"Where did you have it last?\" {asked} {fn}. {N} thought hard. \"At {p3}!\" {he} {cried}.",
                "\"I think I know where it is,\" {said} {fn}. \"Let us go to {p3}.\"")]
    p5 = [s.say("Together they went to {p3}.", "They hurried to {p3}, side by side.", "So {n} and {fn} walked to {p3}."),
          s.say("And there it was! {how}.", "They looked and looked, and at last they found the {o}. {how}.", "Suddenly {fn} {cried}, \"Look!\" {how}."),
          s.say("{Fn} {got} the {ob} and gave it back to {n}.", "{Fn} pushed and {n} pulled, and then {n} held the {ob} in {his} {hands} again.",
                "With a long stick they got it out, and {n} hugged the {o}."),
          s.say("\"{Great}!\" {cried} {n}.", "{N} jumped for joy.", ""), thanks(s)]
    return finish(s, join(p1, p2, p3, p4, p5, [close(s, s.pick(("help", "kindness", "search")))]), hero, helper,
                  ["@ {o}", "a lost {ob}", "@ {k} who lost @ {o}", "@ {k} who loses {his} {ob}", "@ {k} and @ {o}", "@ {k} who is looking for @ {o}"],
                  [("What did {n} lose?", "{N} lost @ {o}."), ("What was lost?", "The {o} was lost."), ("Where did they find the {ob}?", "They found the {ob} at {p3}."),
                   ("Where was the {ob}?", "The {ob} was at {p3}."), ("What color was the {ob}?" if s.value("o").split()[0] in ("red", "blue", "yellow", "green", "white", "purple", "orange", "pink", "brown") else "Did {n} find the {ob}?",
                    "The {ob} was " + s.value("o").split()[0] + "." if s.value("o").split()[0] in ("red", "blue", "yellow", "green", "white", "purple", "orange", "pink", "brown") else "Yes, {n} found the {ob} with the help of {fn}.")])


MYSTERIES = (
    ("a strange knocking", "The knocking came again: knock, knock, knock", "a woodpecker had lost its way in the dark and was tapping at a shutter"),
    ("a soft crying", "The crying grew louder", "a small kitten had climbed too high and could not get down"),
    ("a blue light", "The light moved slowly from side to side", "a firefly had got into an old glass jar and could not find the way out"),
    ("a low humming", "The humming sounded almost like a song", "the wind was blowing over the neck of an empty bottle"),
    ("a rustling in the dark", "Something rustled and stopped and rustled again", "a baby hedgehog was looking for its mother"),
    ("a deep growl", "The growl seemed to come out of the ground", "an old dog was snoring in a barrel"),
    ("a silver glow", "The glow shone through every crack", "the moon was shining on a forgotten mirror"),
    ("a tiny voice", "The tiny voice called, \"Hello! Hello!\"", "a little parrot was sitting in a broken cage"),
    ("a wild flapping", "The flapping went on and on", "a young bat had got caught in a curtain"),
    ("a strange shadow", "The shadow had long ears and a round back", "a little rabbit was sitting in front of a lantern"),
)


def mystery(scene: Scene, wanted: Wanted) -> Story:
    """Something strange at night turns out to be harmless."""
    s = scene
    hero, helper = set_stage(s, wanted, not_trait="lonely brave")
    what, again, truth = s.pick(MYSTERIES)
    s.set(what=what, the="the " + what.split(" ", 1)[1], again=again, truth=truth, truth_c=truth[0].upper() + truth[1:], p1=s.pick(PLACES))
    p1 = [opening(s), s.say("{Oneday2} {n} {noticed} {what} near {p1}.", "{Oneday2}, when everyone was asleep, {n} {noticed} {what}. It came from {p1}.",
                            "{Oneday2} {n} could not sleep. Then {he} {noticed} {what}, over by {p1}.")]
    p2 = [s.say("{again}.") if s.chance(0.7) else "", s.say("\"[What can that be|Who is there|What is that]?\" whispered {n}.", "{heart}", "{N} pulled the blanket up to {his} nose."),
          s.say("The next morning nobody could say what it was.", "\"It must be a ghost,\" {said} the neighbors. \"Do not go there!\"",
                "\"It is surely a monster,\" {said} {stranger}, and shivered.", "Nobody dared to go and look."),
          s.say("But {n} wanted to know the truth.", "But {r} could think of nothing else.", "{N} was a little afraid, but {he} was even more curious.")]
    p3 = [s.say("{N} went to {fn}, @ {adj2} {fk} who lived next door. \"Will you come with me?\" {he} asked.", "On the way {he} met {fn}, @ {fk} with @ {color} scarf. \"Are you going to look, too?\" asked {fn}.",
                "{He} told {his} friend {fn}, @ {adj2} {fk}, about it."),
          s.say("\"[Of course I will|Two are braver than one|Let us go tonight],\" {ans} {fn}.", "\"I am afraid, but I will come with you,\" {ans} {fn}.", "\"Let us take a lantern and look,\" {said} {fn}."),
          s.say("That night they crept to {p1}, close together.", "When it was dark, {n} and {fn} tiptoed to {p1}.", "As soon as the moon rose, the two friends set off for {p1}."),
          s.say("{again}.", "Their steps were as soft as snow.", "An owl called, and both of them jumped.", "{deepbreath}")]
    p4 = [s.say("{N} lifted the lantern and looked.", "Then {n} pushed open a little door.", "Slowly {r} went closer.", "{Fn} held {his} {hands1}, and {n} looked around the corner."),
          s.say("And what did they see? It was quite simple: {truth}.", "There was no monster at all: {truth}.", "Then they began to laugh, because {truth}."),
          s.say("\"[So that is all|And I was afraid of that]!\" {cried} {n}.", "{Fn} laughed so much that {fhe} had to sit down.", "\"There is nothing to be afraid of,\" {said} {fn}."),
          s.say("The next day they told everyone, and soon all the neighbors were laughing with them.", "{Nextday} everyone wanted to hear the story, and {n} told it three times.",
                "They put everything right, and then it was quiet again.", "From then on everyone slept well.")]
    return finish(s, join(p1, p2, p3, p4, [close(s, "listening")]), hero, helper,
                  ["{what}", "@ {k} who hears something strange at night", "a mystery", "a strange night", "@ {k} who is not afraid of ghosts", "@ {k} and {what}"],
                  [("What did {n} notice?", "{N} noticed {what}."), ("What was it?", "It was simple: {truth}."), ("Where did it happen?", "It happened near {p1}."),
                   ("Was there a monster?", "No, there was no monster. {truth_c}."), ("Who went with {n}?", "{Fn}, the {fk}, went with {n}.")])


# (problem, cause, what is missing meanwhile, remedy, proof)
TROUBLES = (
    ("the village well was dry", "a big stone had rolled into the spring", "Nobody could wash or cook", "they rolled the stone aside", "clear water ran into the well again", "the well"),
    ("the church clock had stopped", "a bird had built its nest between the wheels", "Everyone was late for everything", "they carried the nest carefully to a safe tree", "the clock began to tick again", "the clock"),
    ("the windmill no longer turned", "a rope was wound around the axle", "There was no flour and no bread", "they cut the rope and greased the wheels", "the great sails began to turn", "the windmill"),
    ("the lighthouse was dark", "the lamp had no oil left", "The boats could not find the harbor", "they carried oil up all the stairs", "the light shone far over the water", "the lighthouse"),
    ("the bridge had fallen down", "the storm had broken the old beams", "Nobody could get to the market", "they laid new beams and hammered all day", "the first wagon rolled over the bridge", "the bridge"),
    ("the mill stream was blocked", "branches and leaves had made a dam", "The mill wheel stood still", "they pulled the branches out one by one", "the water rushed, and the wheel turned again", "the stream"),
    ("the bees had left the orchard", "there were no flowers left for them", "There was no honey for the cakes", "they sowed flowers along every path", "the bees came back, humming happily", "the bees"),
    ("the street lamps did not burn", "the lamplighter was ill in bed", "The children were afraid to walk home", "they lit the lamps, one after the other", "the whole street glowed with light", "the lamps"),
    ("the bakery oven was cold", "the chimney was full of old straw", "There was no bread for breakfast", "they swept the chimney from top to bottom", "the smell of fresh bread filled the air", "the oven"),
    ("the garden was dying", "the little water pipe was broken", "The beans hung their heads", "they mended the pipe and watered every plant", "green leaves grew again", "the garden"),
)


def village(scene: Scene, wanted: Wanted) -> Story:
    """Everyone has a problem; the hero looks for its cause and mends it."""
    s = scene
    hero, helper = set_stage(s, wanted)
    problem, cause, meanwhile, remedy, proof, thing = s.pick(TROUBLES)
    s.set(problem=problem, cause=cause, remedy=remedy, proof=proof, thing=thing)
    p1 = [opening(s), s.say("{Oneday} there was great trouble: {problem}.", "But {oneday} {problem}.", "Then, {oneday}, everyone was upset, because {problem}."), s.say(meanwhile + ".")]
    p2 = [s.say("Nobody knew why.", "Everyone talked, but nobody did anything.", "\"What shall we do?\" the neighbors asked each other.", "Some shouted, some cried, and some just went to bed."),
          s.say("\"Somebody must find out what is wrong,\" {said} {n}. \"I will go and look.\"", "{think} Then {he} said, \"There must be a reason.\"", "\"I want to help,\" {said} {n}, but the others only shook their heads.",
                "\"Let me try,\" {said} {n}. \"You are only @ {k},\" {said} {stranger}. But {n} went anyway.")]
    p3 = [s.say("{N} asked {fn}, @ {adj2} {fk}, to come along.", "Only {fn}, @ {adj2} {fk}, came with {him}.", "On the way {he} met @ {fk} named {fn}, who wanted to help."),
          weather(s) if s.chance(0.3) else "", s.say("They looked here and there, high and low.", "For a long time they found nothing.", "They walked around {thing} three times and looked at everything.", "{N} looked with open eyes, and {fn} listened."),
          s.say("At last they saw what was wrong: {cause}.", "Then {fn} found it: {cause}.", "\"Look!\" {cried} {n}. Now they could see it: {cause}.", "Suddenly {n} understood. {Cause}!")]
    p4 = [s.say("It was hard work, but {remedy}.", "They did not wait for anyone. At once {remedy}.", "Together {remedy}.", "\"One, two, three!\" {cried} {fn}, and {remedy}."),
          s.say("And then {proof}.", "A moment later {proof}.", "Everyone came running, and before their eyes {proof}."),
          s.say("\"Three cheers for {n} and {fn}!\" everyone shouted.", "All the neighbors clapped and cheered.", "There was a big feast with {food} and music.", "{Stranger} said, \"I am sorry that I did not believe in you.\""),
          s.say("\"We did it together,\" {said} {n}.", "{N} smiled at {fn}.", "")]
    return finish(s, join(p1, p2, p3, p4, [close(s, s.pick(("help", "kindness", "search")))]), hero, helper,
                  ["@ {k} who helps the village", "{thing}", "@ {k} who helps everyone", "a village with a problem", "@ {k} and @ {fk} who help everyone", "teamwork"],
                  [("What was the problem?", "The problem was that {problem}."), ("Why was there trouble?", "There was trouble because {cause}."), ("What did they do?", "[They helped: {remedy}.|In the end {remedy}.]"),
                   ("What happened at the end?", "At the end {proof}."), ("Who came with {n}?", "{Fn}, the {fk}, came with {n}.")])
