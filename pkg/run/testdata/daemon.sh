# Leaves a process behind that holds the pipes, and ends with the status $2.
sleep 600 &
echo $! >"$1"
echo ready
exit "$2"
