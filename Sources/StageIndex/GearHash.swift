/// The table of a gear hash (Xia et al., "Ddelta", 2014).
///
/// For each byte the hash is shifted left by one bit and the byte's table value is added, so that its 64 bits
/// depend on the last 64 bytes only.
package enum GearHash {
    /// A value for each byte: splitmix64 (Steele et al., OOPSLA 2014) with the seed 0.
    package static let table: [UInt64] = {
        var state: UInt64 = 0
        return (0..<256).map { _ in
            state &+= 0x9E37_79B9_7F4A_7C15
            var mixed = state
            mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
            mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
            return mixed ^ mixed >> 31
        }
    }()
}
