"""`keepfast demo`: a small shop's orders through a real consumer, past failures, an outage and a record that kills its
process; then the causes of the dead letters, a fix, a replay, and an account of every order by its identity.

    shop                  the consumer: what a user writes
    orders                what customers send
    carrier               the downstream, which has an outage
    consumer_supervisor   the process that keeps the consumer running
    consumer_process      starts and stops that process, and reads the events of both
    picture               what there is to see at one moment
    story                 what happens, in order
    reconcile             the account, in a process of its own
    screen                how it is shown: live on a terminal, as lines elsewhere
"""
