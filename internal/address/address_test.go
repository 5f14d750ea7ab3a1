package address

import (
	"errors"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const never, private, public = 0, 1, 2
	tests := map[string]int{
		"169.254.169.254:80": never, "169.254.0.1:80": never, "[fe80::1]:80": never, "[fe80::1%eth0]:80": never,
		"[::ffff:169.254.169.254]:80": never, "[64:ff9b::a9fe:a9fe]:80": never, "[2002:a9fe:a9fe::1]:80": never,
		"[fd00:ec2::254]:80": never, "100.100.100.200:80": never,
		"0.0.0.0:80": never, "0.1.2.3:80": never, "[::]:80": never, "224.0.0.1:80": never, "239.255.255.250:80": never,
		"[ff02::1]:80": never, "255.255.255.255:80": never, "240.0.0.1:80": never, "nonsense": never, "localhost:80": never,
		"127.0.0.1:80": private, "127.9.9.9:80": private, "[::1]:80": private, "10.0.0.1:80": private, "172.16.0.1:80": private,
		"192.168.1.1:80": private, "[fd12::1]:80": private, "100.64.0.1:80": private, "198.18.0.1:80": private, "192.0.0.1:80": private,
		"[::ffff:127.0.0.1]:80": private, "[64:ff9b::7f00:1]:80": private, "[fec0::1]:80": private,
		"8.8.8.8:443": public, "[2606:4700::1111]:443": public, "[64:ff9b::808:808]:443": public, "172.32.0.1:80": public, "100.128.0.1:80": public,
	}
	for address, kind := range tests {
		for reach, ok := range map[Reach]bool{Any: kind != never, Public: kind == public, Private: kind == private} {
			if err := Check(address, reach); (err == nil) != ok || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("Check(%s, %d) = %v", address, reach, err)
			}
		}
	}
}
