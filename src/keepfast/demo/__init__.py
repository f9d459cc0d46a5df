"""`keepfast demo`: a small shop's orders through a real consumer, with failures, an outage and a record that crashes
its process; then the causes of the dead letters, a fix, a replay, and a reconciliation of every order by its
identity.

    shop              the consumer: user code
    orders            the input
    carrier           the downstream service, which has an outage
    consumer_process  the process that keeps the consumer running, and what starts, stops and follows it
    picture           the state to display
    story             the sequence of steps
    reconcile         the reconciliation, in a process of its own
    screen            output: live on a terminal, as lines elsewhere
"""
