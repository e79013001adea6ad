import CCrypto

/// A memory buffer for OpenSSL's PEM functions.
@safe struct MemoryBIO: ~Copyable {
    /// The BIO, valid for the lifetime of the value.
    let bio: OpaquePointer

    /// Creates a buffer with the content `bytes`.
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

    /// Reads all bytes that were written.
    func contents() -> [UInt8] {
        var contents: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while case let count = unsafe BIO_read(bio, &buffer, CInt(buffer.count)), count > 0 {
            contents += buffer.prefix(Int(count))
        }
        return contents
    }
}
