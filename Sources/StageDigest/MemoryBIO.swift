import CCrypto

/// Bytes in memory as OpenSSL's PEM functions read and write them.
@safe struct MemoryBIO: ~Copyable {
    /// The stream, valid as long as the value.
    let bio: OpaquePointer

    /// Creates a stream that holds `bytes`.
    init(holding bytes: [UInt8] = []) {
        guard let bio = unsafe BIO_new(BIO_s_mem()) else { fatalError("out of memory") }
        unsafe self.bio = bio
        guard !bytes.isEmpty else { return }
        let written = unsafe BIO_write(bio, bytes, CInt(bytes.count))
        precondition(Int(written) == bytes.count, "out of memory")
    }

    deinit {
        unsafe BIO_free(bio)
    }

    /// Reads everything that has been written.
    func contents() -> [UInt8] {
        var contents: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while case let count = unsafe BIO_read(bio, &buffer, CInt(buffer.count)), count > 0 {
            contents += buffer.prefix(Int(count))
        }
        return contents
    }
}
