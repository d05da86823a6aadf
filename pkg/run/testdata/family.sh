# A child that ignores polite signals, with a grandchild and one below that.
# It writes their ids to the file $1 and waits for ever.
trap '' TERM INT HUP
sh -c 'trap "" TERM; sleep 600 & echo $! >>"$0"; echo $$ >>"$0"; wait' "$1.part" &
while [ "$(cat "$1.part" 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.01; done
echo $$ >>"$1.part"
mv "$1.part" "$1"
while :; do wait; sleep 600; done
