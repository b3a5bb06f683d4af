package jsonscan

// members reads members of an object, as many as lie whole in p and are plain: no white space, no escape, and a
// string, a whole number or null for a value. It stops at a point where the other steps can go on, in the state they
// would have reached; that is i itself if there is nothing for it to read. This is the way nearly all bytes go.
func (s *Scanner) members(p []byte, i int) int {
	for i < len(p) && p[i] == '"' {
		end := i + 1 + plain(p[i+1:])
		if end+2 >= len(p) || p[end] != '"' || p[end+1] != ':' {
			return i
		}
		s.at = dead
		if s.live == s.depth {
			s.at = s.paths.nodes[s.nodes[s.live]].find(p[i+1 : end])
		}
		i = end + 2
		end = s.plainValue(p, i)
		if end == i {
			s.st = value
			return i
		}
		if i = end; i == len(p) || p[i] != ',' {
			s.st = next
			return i
		}
		s.st = key
		i++
	}
	return i
}

// plainValue reads a plain value whose end is in p, and returns where it ends: i if it is none.
func (s *Scanner) plainValue(p []byte, i int) int {
	switch c := p[i]; {
	case c == '"':
		end := i + 1 + plain(p[i+1:])
		if end == len(p) || p[end] != '"' {
			return i
		}
		s.size = end - i - 1
		s.tell(String, p[i+1:min(end, i+1+MaxValue)])
		return end + 1
	case c == 'n':
		if i+4 > len(p) || string(p[i:i+4]) != "null" {
			return i
		}
		s.tell(Null, nil)
		return i + 4
	case '0' <= c && c <= '9':
		return s.plainNumber(p, i)
	}
	return i
}

// plainNumber reads a whole number that a comma or brace ends.
func (s *Scanner) plainNumber(p []byte, i int) int {
	end := i + 1
	for p[i] != '0' && end < len(p) && p[end]-'0' <= 9 {
		end++
	}
	if end == len(p) || p[end] != ',' && p[end] != '}' {
		return i
	}
	s.tell(Number, p[i:min(end, i+MaxValue)])
	return end
}
