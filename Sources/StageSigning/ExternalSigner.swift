import FoundationEssentials
import StageDigest
import StageModel
import StageSystem
package import SystemPackage

/// A private key that is accessible through a program: of a hardware token, a key management service or an
/// agent.
///
/// `Manifests/signing-program.md` specifies the protocol: one JSON object a line on the program's standard
/// input and output.
package final class ExternalSigner: MetadataSigner {
    /// The public half of the key.
    package let key: RepositoryKey
    private let exchange: Exchange
    private let publicKey: PublicKey

    /// The default time limit of an answer: long enough for a person to enter a PIN.
    package static let answerLimit = Duration.seconds(120)

    fileprivate struct Request: Encodable {
        var `protocol` = 1
        var request: String
        var keyid: String?
        var scheme: String?
        var message: String?
    }

    fileprivate struct Answer: Decodable {
        var scheme: String?
        var `public`: String?
        var signature: String?
        var error: String?
    }

    /// Starts the program and requests its public key.
    ///
    /// - Parameters:
    ///   - path: The program.
    ///   - environment: Its environment.
    ///   - limit: The time limit of each answer; greater than zero.
    /// - Throws: ``SigningError`` if the program cannot be started or violates the protocol; the program has
    ///   ended then.
    package init(
        _ path: FilePath,
        environment: [String: String],
        answersWithin limit: Duration = ExternalSigner.answerLimit
    ) throws(SigningError) {
        let conversation = try SigningError.wrapping { () throws(FileError) in
            try ConversationProgram(path, environment: environment)
        }
        exchange = Exchange(program: path.string, conversation: conversation, limit: limit)
        let answer = try exchange.ask(Request(request: "public-key"), asked: .publicKey)
        guard let name = answer.scheme, let scheme = SignatureScheme(rawValue: name),
            let text = answer.public
        else {
            throw exchange.malformed(
                "expected the members 'scheme' and 'public', with one of the schemes "
                    + SignatureScheme.allCases.map(\.rawValue).joined(separator: ", "),
                asked: .publicKey
            )
        }
        do throws(KeyError) {
            publicKey = try PublicKey(text, scheme: scheme)
        } catch {
            throw exchange.malformed(error.description, asked: .publicKey)
        }
        key = RepositoryKey(publicKey)
    }

    /// Returns the signature of `message`.
    ///
    /// - Parameters:
    ///   - message: The bytes to sign.
    ///   - subject: The name of the metadata in messages.
    /// - Returns: The signature.
    /// - Throws: ``SigningError`` if the key cannot be used.
    package func signature(
        of message: [UInt8],
        subject: String
    ) throws(SigningError) -> [UInt8] {
        let request = Request(
            request: "sign",
            keyid: key.id,
            scheme: key.scheme,
            message: Data(message).base64EncodedString()
        )
        let asked = SignerRequest.signature(subject: subject, key: key.id)
        let answer = try exchange.ask(request, asked: asked)
        guard let text = answer.signature, let signature = Data(base64Encoded: text) else {
            throw exchange.malformed("expected the member 'signature' in base64", asked: asked)
        }
        guard publicKey.verifies(signature: Array(signature), of: message) else {
            throw .signer(program: exchange.program, asked, .wrongSignature)
        }
        return Array(signature)
    }

    /// Closes the program's standard input and waits until it ends; kills it after
    /// `ConversationProgram.endLimit`.
    ///
    /// The signer cannot be used afterwards.
    ///
    /// - Returns: ``SigningError/signer(program:_:_:)`` if the program was killed, otherwise `nil`.
    package func finish() -> SigningError? {
        let limit = ConversationProgram.endLimit
        guard exchange.conversation.finish(within: limit) == nil else { return nil }
        return .signer(program: exchange.program, .end, .late(limit))
    }
}

/// The conversation with a signing program.
private struct Exchange {
    let program: String
    let conversation: ConversationProgram
    let limit: Duration

    /// The maximum number of bytes of an answer.
    private static let longest = 64 << 10

    func ask(
        _ request: ExternalSigner.Request,
        asked: SignerRequest
    ) throws(SigningError) -> ExternalSigner.Answer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Encoding a request cannot fail.
        guard let line = try? encoder.encode(request) else {
            throw .signer(program: program, asked, .ended)
        }
        let reply: [UInt8]
        do throws(ConversationProgram.Fault) {
            reply = try conversation.answer(
                to: Array(line),
                limit: Self.longest,
                within: limit
            )
        } catch {
            switch error {
            case .ended: throw .signer(program: program, asked, .ended)
            case .tooLong:
                throw malformed("it has more than \(Self.longest >> 10) KiB", asked: asked)
            case .deadlineExceeded:
                _ = conversation.finish(within: ConversationProgram.endLimit)
                throw .signer(program: program, asked, .late(limit))
            }
        }
        guard let answer = try? JSONDecoder().decode(ExternalSigner.Answer.self, from: Data(reply))
        else {
            let text = String(decoding: reply.prefix(60), as: UTF8.self)
            throw malformed(
                "expected a JSON object, found '\(text.forDisplay(atMost: 60))'",
                asked: asked
            )
        }
        if let reason = answer.error { throw .signer(program: program, asked, .refused(reason)) }
        return answer
    }

    func malformed(_ reason: String, asked: SignerRequest) -> SigningError {
        .signer(program: program, asked, .malformed(reason))
    }
}
