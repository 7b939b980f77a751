"""channels_redis: both of its layers between several clients. Says "done" when all is as it should be."""

import asyncio

from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer

from channels.exceptions import ChannelFull
from workers import PATIENCE, URL, check, client, wait

MESSAGES = 50


async def receive(layer, channel):
    return await asyncio.wait_for(layer.receive(channel), PATIENCE)


async def collected(layer, channel, count):
    """Returns the sorted numbers of so many messages."""
    return sorted([(await receive(layer, channel))["number"] for _ in range(count)])


def wait_for_subscription(layer, channel):
    """Waits until the server knows a subscription, whose confirmation the layer does not await."""
    if isinstance(layer, RedisPubSubChannelLayer):
        wait(f"a subscription to {channel}", lambda: client.pubsub_numsub(channel) == [(channel, 1)])


async def channels_and_groups(kind):
    # Two processes would have a layer each.
    sender, receiver = kind(hosts=[URL]), kind(hosts=[URL])
    numbers = list(range(MESSAGES))

    mailbox = await receiver.new_channel()
    wait_for_subscription(receiver, mailbox)
    for number in numbers:
        await sender.send(mailbox, {"type": "note", "number": number})
    check("messages of a channel", await collected(receiver, mailbox, MESSAGES), numbers)

    members = [await receiver.new_channel() for _ in range(3)]
    for member in members:
        await receiver.group_add("room", member)
        wait_for_subscription(receiver, member)
    wait_for_subscription(receiver, "asgi__group__room")
    for number in numbers:
        await sender.group_send("room", {"type": "note", "number": number})
    received = await asyncio.gather(*(collected(receiver, one, MESSAGES) for one in members))
    check("messages of a group", received, [numbers] * 3)

    await receiver.group_discard("room", members[0])
    await sender.group_send("room", {"type": "note", "number": -1})
    check("for a member", await collected(receiver, members[1], 1), [-1])
    # What a former member receives next comes from elsewhere.
    await sender.send(members[0], {"type": "note", "number": -2})
    check("for a former member", await collected(receiver, members[0], 1), [-2])
    await sender.flush()
    await receiver.flush()


async def capacity():
    layer = RedisChannelLayer(hosts=[URL], capacity=3)
    for number in range(3):
        await layer.send("full", {"type": "note", "number": number})
    try:
        await layer.send("full", {"type": "note", "number": 3})
        raise AssertionError("a channel takes more than its capacity")
    except ChannelFull:
        check("messages in order", [(await receive(layer, "full"))["number"] for _ in range(3)], [0, 1, 2])

    # One that waits gets what comes later.
    waiting = asyncio.ensure_future(receive(layer, "later"))
    await asyncio.sleep(0.1)
    check("it waits", waiting.done(), False)
    await layer.send("later", {"type": "note", "number": 7})
    check("a message later", (await waiting)["number"], 7)
    await layer.flush()


async def layers():
    await channels_and_groups(RedisChannelLayer)
    await channels_and_groups(RedisPubSubChannelLayer)
    await capacity()
    check("keys that are left", client.keys("asgi*"), [])
    print("done")


def main():
    asyncio.run(layers())
