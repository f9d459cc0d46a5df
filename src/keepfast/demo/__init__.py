"""`keepfast demo`: a small shop's orders through a real consumer, past failures, an outage and a record that kills its
process; then the causes of the dead letters, a fix, a replay, and an account of every order by its identity.

    shop      the consumer: what a user writes        keeper    the process that keeps it running
    orders    what customers send                     crew      the parent's hold on that process, and its log
    carrier   the downstream, which has an outage     picture   what there is to see at one moment
    books     the account, in a process of its own    story     what happens, in order
    plain, screen   how it is told: as lines, or live on a terminal
"""
