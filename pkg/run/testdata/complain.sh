# Says $2 on stderr, the text $3 times over before it, and ends with the status $1.
i=0
while [ "$i" -lt "${3:-0}" ]; do
	echo "line $i: something is not right here, and this is said at length" >&2
	i=$((i + 1))
done
printf '%s\n' "$2" >&2
exit "$1"
