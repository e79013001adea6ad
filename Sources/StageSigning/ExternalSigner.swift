import FoundationEssentials
import StageDigest
import StageModel
import StageSystem
public import SystemPackage

/// A private key in the hands of a program: a hardware token, a key management service, an agent.
///
/// The protocol is that of `Manifests/signing-program.md`: a JSON object a line, on the program's standard
/// input and output.
public final class ExternalSigner: MetadataSigner {
    /// The public half of the key.
    public let key: RepositoryKey
    private let conversation: ConversationProgram
    private let program: String
    private let publicKey: PublicKey

    /// The most bytes of an answer.
    private static let limit = 64 << 10

    private struct Request: Encodable {
        var `protocol` = 1
        var request: String
        var keyid: String?
        var scheme: String?
        var message: String?
    }

    private struct Answer: Decodable {
        var scheme: String?
        var `public`: String?
        var signature: String?
        var error: String?
    }

    /// Starts the program and asks for its public key.
    ///
    /// - Throws: ``SigningError`` if the program cannot be started, or breaks the protocol.
    public init(_ path: FilePath, environment: [String: String]) throws(SigningError) {
        program = path.string
        conversation = try SigningError.wrapping { () throws(FileError) in
            try ConversationProgram(path, environment: environment)
        }
        let answer = try Self.ask(conversation, Request(request: "public-key"), of: path.string)
        guard let name = answer.scheme, let scheme = SignatureScheme(rawValue: name),
            let text = answer.public
        else {
            throw .signer(
                program: path.string,
                .malformed(
                    "expected the members 'scheme' and 'public', with one of the schemes "
                        + SignatureScheme.allCases.map(\.rawValue).joined(separator: ", ")
                )
            )
        }
        do throws(KeyError) {
            publicKey = try PublicKey(text, scheme: scheme)
        } catch {
            throw .signer(program: path.string, .malformed(error.description))
        }
        key = RepositoryKey(publicKey)
    }

    /// Returns the signature of the bytes.
    ///
    /// - Throws: ``SigningError`` if the key cannot be used.
    public func signature(of message: [UInt8]) throws(SigningError) -> [UInt8] {
        let request = Request(
            request: "sign",
            keyid: key.id,
            scheme: key.scheme,
            message: Data(message).base64EncodedString()
        )
        let answer = try Self.ask(conversation, request, of: program)
        guard let text = answer.signature, let signature = Data(base64Encoded: text) else {
            throw .signer(
                program: program,
                .malformed("expected the member 'signature' in base64")
            )
        }
        guard publicKey.verifies(signature: Array(signature), of: message) else {
            throw .signer(program: program, .wrongSignature)
        }
        return Array(signature)
    }

    private static func ask(
        _ conversation: ConversationProgram,
        _ request: Request,
        of program: String
    ) throws(SigningError) -> Answer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // A request is always JSON.
        guard let line = try? encoder.encode(request), conversation.send(Array(line)),
            let reply = conversation.receive(limit: limit)
        else { throw .signer(program: program, .ended) }
        guard let answer = try? JSONDecoder().decode(Answer.self, from: Data(reply)) else {
            let text = String(decoding: reply.prefix(60), as: UTF8.self)
            throw .signer(
                program: program,
                .malformed("expected a JSON object, found '\(text.forDisplay(atMost: 60))'")
            )
        }
        if let reason = answer.error { throw .signer(program: program, .refused(reason)) }
        return answer
    }
}
